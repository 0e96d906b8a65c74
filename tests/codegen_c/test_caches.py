"""Emptying the caches reads every line of the memory that it is given, and changes nothing."""

from __future__ import annotations

import numpy as np
import pytest

from codegen_c import caches


@pytest.mark.parametrize("nbytes", [0, 1, 64, 65, 100_003])
def test_every_line_is_read(nbytes: int) -> None:
    data = np.random.default_rng(nbytes).integers(0, 256, nbytes, np.uint8)
    read, foreign = caches._reader()
    assert read(data.ctypes.data, data.nbytes) == data[::64].sum()
    assert read(foreign.ctypes.data, foreign.nbytes) == foreign.nbytes // 64


def test_flushing_changes_nothing() -> None:
    data = np.random.default_rng(0).random(10_007)
    before = data.copy()
    caches.flush(data.ctypes.data, data.nbytes)
    np.testing.assert_array_equal(data, before)
