"""A mutation's promises: rows stay programs, the mask is true, what it is given is left alone, a seed decides."""

import time
from types import ModuleType
from typing import Any

import numpy as np

import te_lite as te
from ansor.core.target.hardware import HardwareParams
from ansor.core.target.target import Target
from ansor.sketch.generate import generate_sketches
from ansor.space.sample import sample_rows
from ansor.space.spaces import home, space_of

from ..core.schedules import product
from ..core.verdict import function, need

HINT = """Make masks, one entry a row: is the source even? Is the target another column? If it is the last one, may it
be twice as long? Then change `out[each[moved], source[moved]]` and the same of the target."""
TARGET = Target("c")
HARDWARE = HardwareParams(num_cores=4, vector_unit_bytes=32, cache_line_bytes=64, target=TARGET)


def drawn(n: int) -> tuple[Any, np.ndarray]:
    """A space of a product whose innermost lengths matter, and rows of it."""
    sketch = generate_sketches(te.ComputeDAG(product(256, 384, 512)), TARGET, HARDWARE)[0]
    space = space_of(sketch, TARGET, HARDWARE)
    return space, sample_rows(home(space), n, np.random.default_rng(14), TARGET, HARDWARE)


def check(answer: ModuleType) -> None:
    """Several seeds, since each draws one tile."""
    mutation = function(answer, "MoveFactor")()
    space, rows = drawn(2000)
    changed = 0
    for seed in range(12):
        before = rows.copy()
        out, mask = mutation.apply(rows, space, np.random.default_rng(seed))
        need(out is not ... and mask is not ..., "`apply` still has its hole: replace both `...`")
        need((rows == before).all(), "the rows that you were given have changed: work on a copy")
        need(out.dtype == np.int64, f"lengths are int64, yours are {out.dtype}: use // and not /")
        for tile in space.tiles:
            lengths = out[:, tile.columns]
            whole = (lengths > 0).all(axis=1) & np.any([e % lengths.prod(axis=1) == 0 for e in tile.extents], axis=0)
            bad = np.flatnonzero(~whole)[:1]
            need(len(bad) == 0, f"{before[bad, tile.columns]} became {lengths[bad]}: the product no longer divides")
            kept = (lengths.prod(axis=1) == before[:, tile.columns].prod(axis=1)).all()
            need(kept, "a factor came or went: what the source loses, the target must gain")
            long = (lengths[:, -1] <= tile.max_innermost).all()
            need(long, f"an innermost loop of {lengths[:, -1].max()} is longer than the {tile.max_innermost} allowed")
        need(((out != before).any(axis=1) == mask).all(), "the mask must say exactly which rows differ")
        again = mutation.apply(rows, space, np.random.default_rng(seed))[0]
        need((again == out).all(), "the same seed gives other rows: draw from `rng` only")
        changed += int(mask.sum())
    need(changed > 0.1 * 12 * len(rows), f"only {changed} of {12 * len(rows)} rows were changed")
    many = np.tile(rows, (50, 1))
    start = time.process_time()
    mutation.apply(many, space, np.random.default_rng(0))
    need(time.process_time() - start < 2, "100,000 rows take more than 2 seconds: no loop over rows")
