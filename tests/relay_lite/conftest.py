"""Networks of tests are compiled soon: what is tested is their text and their results, not their speed.

`make fuzz` compiles them as users do, and so does `test_kernel_store.py`, whose kernels other processes share.
"""

from __future__ import annotations

import pytest

from codegen_c.compile import OBJECT_FLAGS
from tests.amount import WHOLE
from tests.compiled_soon import soon


@pytest.fixture(autouse=True)
def compile_soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not WHOLE and request.path.stem != "test_kernel_store":
        monkeypatch.setattr("codegen_c.network.OBJECT_FLAGS", soon(OBJECT_FLAGS))
