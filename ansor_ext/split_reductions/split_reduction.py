"""Split-K: a long reduction of few outputs is spread over the machine and summed up by a second kernel.

    C[i, j] = sum_k A[i, k] B[k, j]        becomes, for a factor f,
    R[s, i, j] = sum_t A[i, s * K/f + t] B[s * K/f + t, j]      f times as many points, tiled by the ordinary rules
    C[i, j] = sum_s R[s, i, j]                                  computed in the loops of what follows element by element

The steps are TVM's own (SP, RF).  The factor decides the shape of R, so it is a number in the sketch: one sketch for
each factor.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import ClassVar

from ansor.core.target.hardware import HardwareParams
from ansor.core.values.schedule_primitives import compute_at, split
from ansor.sketch.generate import default_rules
from ansor.sketch.predicates import fusion_target, loop_length, needs_tiling, split_steps
from ansor.sketch.reduction_rules import AddRfactor, CrossThreadReduction
from ansor.sketch.rule import Condition, Outcome, SketchContext, SketchRule
from te_lite.expr.expr import Expr
from te_lite.schedule.loop_steps import Split
from te_lite.schedule.replay import apply, replay
from te_lite.schedule.stage_steps import RFactor
from te_lite.schedule.state import REDUCE, ROOT, SPATIAL, Iter, Stage, State

from ..analysis.nominal import NOMINAL_SMS, SCHEDULERS
from ..analysis.own_stages import derive, has_rfactor

TILED_FACTORS: tuple[int, ...] = (2, 4, 8, 16, 32)
PLAIN_FACTORS: tuple[int, ...] = (16, 64, 256, 1024)

POINTS_PER_THREAD = 8
WARPS_PER_SM = 16

TASKS_PER_CORE = 4
VECTORS_PER_TASK = 4

SHORTEST = 64
SHORTEST_PART = 16
SHORTEST_PLAIN = 1024
SHORTEST_PLAIN_PART = 128
MOST_ROUNDS = 4

LONG_PART = 256
MOST_ROUNDS_OF_LONG = 16
PADDED_TO = 16


def full_tiles(hardware: HardwareParams, is_gpu: bool) -> int:
    """The output points that a tiled kernel needs to fill the machine.

    GPU: a warp for each of the four schedulers of `NOMINAL_SMS` multiprocessors (80 on V100, 108 on A100, 132 on
    H100), each thread with a register tile of 8 points: 131,072.  CPU: four tasks for each core, each with four
    vectors of 4-byte elements, which is what hides the latency of multiply-add.
    """
    if is_gpu:
        return NOMINAL_SMS * SCHEDULERS * hardware.warp_size * POINTS_PER_THREAD
    return hardware.num_cores * TASKS_PER_CORE * VECTORS_PER_TASK * max(1, hardware.vector_unit_bytes // 4)


def is_part_of_split(state: State, k: int) -> bool:
    """Stage `k` holds partial results, or sums them up."""
    return has_rfactor(state, k) or any(has_rfactor(state, p) for p in state.access.read_from[k])


def split_factors(ctx: SketchContext, state: State, k: int) -> tuple[int, ...]:
    """The factors worth trying for the reduction of stage `k`.

    There are none where the machine is full without.  A factor leaves each part long enough, and gives no more than
    four times the points that fill the machine.  On a GPU a machine that is just full has small tiles for each thread:
    up to sixteen times the points are worth trying where parts are so long that summing them up costs little
    (`LONG_PART` terms a part are 512 operations for 8 bytes written and read).
    """
    stage = state.stages[k]
    if stage.is_placeholder or not _is_untouched(stage) or not stage.op.reduce_axis or is_part_of_split(state, k):
        return ()
    is_gpu = ctx.target.is_gpu
    points, length = loop_length(stage, SPATIAL), loop_length(stage, REDUCE)
    if needs_tiling(state, k):
        full, shortest, part, factors = full_tiles(ctx.hardware, is_gpu), SHORTEST, SHORTEST_PART, TILED_FACTORS
    elif is_gpu:
        full, part, factors = NOMINAL_SMS * WARPS_PER_SM, SHORTEST_PLAIN_PART, PLAIN_FACTORS
        shortest = SHORTEST_PLAIN
    else:
        return ()
    few = points < full and length >= shortest
    long = is_gpu and needs_tiling(state, k)
    extent = _longest(stage).length
    padding = ctx.options.max_padding if is_gpu else 0
    found = []
    for f in factors:
        of_axis = part_of(extent, f, padding)
        terms = length // extent * of_axis
        fits = few and terms >= part and points * f <= MOST_ROUNDS * full
        if of_axis and (fits or (long and terms >= LONG_PART and points * f <= MOST_ROUNDS_OF_LONG * full)):
            found.append(f)
    return tuple(found)


def part_of(extent: int, factor: int, padding: float) -> int:
    """The length of `factor` equal parts of an axis; 0 where there are none.

    Where the factor does not divide the extent, parts are a multiple of `PADDED_TO` long and the last one may run over
    the end, by the share `padding` of the extent at most.
    """
    if extent % factor == 0:
        return extent // factor
    part = -(-extent // (factor * PADDED_TO)) * PADDED_TO
    return part if extent + part > factor * part <= extent * (1 + padding) else 0


def _is_untouched(stage: Stage) -> bool:
    """At its root, with its own loops in order; all their extents are numbers."""
    natural = stage.where == ROOT and stage.leaf == tuple(range(stage.num_roots))
    fixed = not any(isinstance(v.extent, Expr) for v in (*stage.op.axis, *stage.op.reduce_axis))
    return natural and fixed and all(it.annotation == "none" for it in stage.iters)


def _longest(stage: Stage) -> Iter:
    """The longest reduction loop, the outermost of several."""
    loops = [it for it in stage.iters if it.kind == REDUCE]
    return max(loops, key=lambda it: it.extent)  # type: ignore[arg-type, return-value]


class SplitReduction:
    """Make an outer part of a long reduction a space axis of a stage of its own, of a given extent."""

    paper: ClassVar[str] = "Rule 6, Reduction Factorization, for stages that are tiled afterwards (Ansor's is not)."
    departs: ClassVar[str] = "Not in TVM: the factor is decided in the sketch, and the partial results are tiled."

    def __init__(self, factor: int) -> None:
        self.factor = factor

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        return Condition.APPLY_AND_SKIP_REST if self.factor in split_factors(ctx, state, k) else Condition.SKIP

    def in_parts(self, ctx: SketchContext, state: State, k: int) -> State:
        """The parts and their sum as stages of their own."""
        loop = _longest(state.stages[k])
        part = part_of(loop.length, self.factor, ctx.options.max_padding)
        state, (outer, _) = split(state, k, loop.uid, [part])
        return apply(state, RFactor(k, state.stages[k].position(outer.uid), 0))

    def apply(self, ctx: SketchContext, state: State, k: int) -> list[Outcome]:
        state = self.in_parts(ctx, state, k)
        target = fusion_target(state, k + 1)
        tiled = needs_tiling(state, k)
        if ctx.target.is_gpu and tiled and target is not None and _is_untouched(state.stages[target]):
            state = compute_at(state, k + 1, target, state.stages[target].leaf[-1])
        return [(state, k + 1)]


class ThreadsOfSplit(CrossThreadReduction):
    """Reduce across threads as ever; the parts of a split reduction always do when they have no tiles, else never."""

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        if state.stages[k].is_placeholder or not is_part_of_split(state, k):
            return super().condition(ctx, state, k)
        found = Condition.SKIP if needs_tiling(state, k) else super().condition(ctx, state, k)
        return Condition.APPLY_AND_SKIP_REST if found == Condition.APPLY else found


def split_rules(ctx: SketchContext, factor: int) -> tuple[SketchRule, ...]:
    """The rules of the target with those for reductions replaced."""
    rules: list[SketchRule] = [SplitReduction(factor)]
    for rule in default_rules(ctx.target):
        if isinstance(rule, CrossThreadReduction):
            rules.append(ThreadsOfSplit())
        elif not isinstance(rule, AddRfactor):
            rules.append(rule)
    return tuple(rules)


def with_whole_parts(sketch: State) -> State:
    """Every tiled stage of partial results computes one part in a tile: the lengths of its first axis become 1.

    Different parts read different inputs, so a tile of several reuses nothing.
    """
    steps = list(sketch.steps)
    for k in range(len(sketch.stages)):
        if has_rfactor(sketch, k) and needs_tiling(sketch, k):
            first = min(split_steps(sketch, k))
            step = steps[first]
            assert isinstance(step, Split)
            steps[first] = replace(step, lengths=(1,) * len(step.lengths))
    return replay(sketch.dag, steps)


class SuitableFactors(SplitReduction):
    """Splits nothing, and notes the factors that would suit a reduction."""

    def __init__(self) -> None:
        self.found: set[int] = set()

    def condition(self, ctx: SketchContext, state: State, k: int) -> Condition:
        self.found.update(split_factors(ctx, state, k))
        return Condition.SKIP


def suitable_factors(ctx: SketchContext) -> list[int]:
    """The factors by which something is split on a way down: up to the first split all ways are those without one."""
    note = SuitableFactors()
    derive(ctx, (note, *split_rules(ctx, 1)[1:]), ctx.dag.init_state, len(ctx.dag.ops) - 1)
    return sorted(note.found)


def split_reduction_sketches(ctx: SketchContext) -> list[State]:
    """For each factor the sketches in which every reduction that it suits is split by it."""
    return list(_made(ctx, default_rules(ctx.target)))


@lru_cache(maxsize=4)
def _made(ctx: SketchContext, _: tuple[SketchRule, ...]) -> tuple[State, ...]:
    """Of the same context and rules they are made once: other rules begin with them."""
    out: list[State] = []
    for factor in suitable_factors(ctx):
        made = derive(ctx, split_rules(ctx, factor), ctx.dag.init_state, len(ctx.dag.ops) - 1)
        out += [with_whole_parts(s) for s in made if any(isinstance(step, RFactor) for step in s.steps)]
    return tuple(out)
