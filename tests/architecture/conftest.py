"""The trees of all sources are kept while the code is looked at, no longer: they are 200 MB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.architecture.imports import parsed
from tests.architecture.loop_lengths import functions_in, module_of, names_of


@pytest.fixture(scope="package", autouse=True)
def forget_trees() -> Iterator[None]:
    yield
    for kept in (parsed, module_of, names_of, functions_in):
        kept.cache_clear()
