"""Sums of blocks on the emulator: races, bounds, barriers, then values."""

from types import ModuleType

import numpy as np

from ..core.emulated import emulate
from ..core.verdict import need

HINT = """`__syncthreads()` lets all threads of a block wait for each other. Every step reads what the step before
wrote. A thread without an element of x can bring a 0."""


def check(answer: ModuleType) -> None:
    """A whole number of blocks first, so that what is missed first is the barrier."""
    source, rng = vars(answer).get("SOURCE"), np.random.default_rng(11)
    need(isinstance(source, str) and "block_sums" in source, "keep the text of the kernel `block_sums` in `SOURCE`")
    for n in (512, 700, 1):
        x, blocks = rng.standard_normal(n).astype("float32"), -(-n // 256)
        sums = np.full(blocks, np.nan, "float32")
        emulate(str(source), "block_sums", blocks, 256, [x, sums, np.int32(n)])
        want = np.pad(x.astype("float64"), (0, blocks * 256 - n)).reshape(blocks, 256).sum(axis=1)
        wrong = np.flatnonzero(~np.isclose(sums, want, atol=1e-4)).tolist()
        need(not wrong, f"n = {n}: the sum of block {wrong[:1]} is wrong")
