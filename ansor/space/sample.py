"""Thousands of rows of a variant at random, valid by construction (section 4.2 of the Ansor paper, as arrays).

Every kind of decision draws its own columns, those first that nothing limits, then the lengths of tiles, then what
rests on extents, from bounds inferred for all rows at once.  Rows that need more shared memory than a block has are
drawn again.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr.lanes import larger

from ..core.errors import TaskError
from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from ..core.values.options import SketchOptions
from ..sketch.shared_memory import estimated_shared_bytes, shared_bytes
from .decisions.decision import Draft, Phase, Setting
from .decisions.draw import Mask, Matrix
from .programs import programs
from .spaces import Variant

ROUNDS = 20
MOST_DRAWS = 8


def sample_rows(
    variant: Variant,
    n: int,
    rng: np.random.Generator,
    target: Target | str,
    hardware: HardwareParams,
    options: SketchOptions | None = None,
) -> Matrix:
    """`n` rows (int64 [n, width]) that keep to the threads and shared memory of a block.

    Fewer, or none, come out when shared memory hardly ever suffices.  Rows may repeat.
    Raises TaskError for a seed in place of a generator.
    """
    law = "a numpy.random.Generator is needed, such as np.random.default_rng(0)"
    require(isinstance(rng, np.random.Generator), TaskError, "sample_rows: rng", law, got=rng)
    setting = Setting.of(target, hardware, options)
    if not setting.target.is_gpu:
        return _drawn(variant, n, rng, setting)
    found: list[Matrix] = [np.empty((0, variant.space.width), np.int64)]
    missing, wanted = n, n + n // 4
    for turn in range(ROUNDS):
        drawn = _drawn(variant, wanted, rng, setting, small=turn == ROUNDS - 1 and missing == n)
        found.append(drawn[:missing])
        missing -= len(found[-1])
        if missing <= 0:
            break
        share = max(len(drawn) / wanted, 1 / MOST_DRAWS)
        wanted = int(1.1 * missing / share) + 16
    return np.concatenate(found)


def drawn_again(
    variant: Variant,
    rows: Matrix,
    rng: np.random.Generator,
    target: Target | str,
    hardware: HardwareParams,
    options: SketchOptions | None = None,
) -> Matrix:
    """`rows` (int64 [n, width]), with what rests on the extents of loops drawn anew, as `sample_rows` draws it."""
    setting, space = Setting.of(target, hardware, options), variant.space
    out: Matrix = rows.copy()
    bounds = programs(variant, out, setting.target, setting.hardware).bounds
    _draw(variant, Draft(space.sketch, space.choices, out, rng, setting, inferred=bounds), Phase.BOUNDED)
    return out


def _drawn(variant: Variant, n: int, rng: np.random.Generator, setting: Setting, small: bool = False) -> Matrix:
    """Those of `n` drawn rows whose shared copies fit into a block."""
    space = variant.space
    draft = Draft(space.sketch, space.choices, np.ones((n, space.width), np.int64), rng, setting, small)
    _draw(variant, draft, Phase.FREE)
    _draw(variant, draft, Phase.LENGTHS)
    lengths = {step: list(np.ascontiguousarray(draft.rows[:, columns].T)) for step, columns in space.splits.items()}
    rows = draft.rows[_fit(estimated_shared_bytes(space.sketch, lengths), setting, n)]
    if not len(rows) or not any(space.of(d.name) for d in space.decisions if d.phase is Phase.BOUNDED):
        return rows
    bounds = programs(variant, rows, setting.target, setting.hardware).bounds
    _draw(variant, replace(draft, rows=rows, inferred=bounds), Phase.BOUNDED)
    return rows[_fit(reduce(larger, shared_bytes(bounds).values(), 0), setting, len(rows))]


def _draw(variant: Variant, draft: Draft, phase: Phase) -> None:
    for decision in variant.space.decisions:
        if decision.phase is phase:
            decision.draw(variant.space.of(decision.name), draft)


def _fit(size: Any, setting: Setting, n: int) -> Mask:
    """Which rows need no more bytes of shared memory than a block has: bool [n]; all of them on a CPU."""
    fits = size <= setting.hardware.max_shared_memory_per_block if setting.target.is_gpu else True
    return np.broadcast_to(np.asarray(fits), (n,))
