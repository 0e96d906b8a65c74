"""The trees of all sources are kept while the house is looked at, no longer: they are 200 MB."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.architecture.imports import parsed


@pytest.fixture(scope="package", autouse=True)
def forget_trees() -> Iterator[None]:
    yield
    parsed.cache_clear()
