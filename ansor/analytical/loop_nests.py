"""The loop nests of programs with their extents, as the analytical models look at them; ints and lanes alike.

The structure is that of the features (`te_lite.bounds.nest`): a nest is one stage with all loops around it, and a
loop that was only fused is looked at as its parts, so a program looks the same whether its loops were fused for an
annotation or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from typing import Any

import numpy as np

from te_lite.bounds.bounds import Bounds
from te_lite.bounds.footprint import BufferAccess, Footprint, Reach
from te_lite.bounds.index_span import form_axes
from te_lite.bounds.loop_scope import BLOCKS, THREADS, LoopKey
from te_lite.bounds.nest import Nest as Structure
from te_lite.bounds.nest import nests_of
from te_lite.bounds.reads import expanded_bodies
from te_lite.computation.tensor import Operation
from te_lite.expr.expr import Call, Select, Var
from te_lite.expr.lanes import larger, product, smaller
from te_lite.expr.visit import free_vars, walk
from te_lite.schedule.state import INLINED, Stage

from ..features.count import op_counts
from ..features.held_sums import buffer_access, guarded, reads_of
from ..space.programs import Programs
from ..space.trace import recorded

CALL_OPERATIONS = 8
"""What a call (exp, tanh, ...) counts in arithmetic operations: the order of magnitude of a polynomial kernel."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop of a nest.  `parallel` and `vector` are truth values or lanes of them; `tag` is its annotation.

    `extent` is a float or float64 lanes: the iterations of a whole nest may be more than 2^63.
    """

    stage: int
    uid: int
    extent: Any
    tag: str
    reduce: bool
    parallel: Any = False
    vector: Any = False

    @property
    def key(self) -> LoopKey:
        return self.stage, self.uid


@dataclass(frozen=True, slots=True)
class Work:
    """Instructions of one iteration: float arithmetic, and selections by a condition on the root axes `tested`."""

    arithmetic: int
    tests: int
    tested: frozenset[int]


@dataclass(frozen=True)
class Nest:
    """Stage `k` of `bounds`, computed in the loops `loops` (outermost first), the last `own` of them its own.

    `structure` has its loops as the features see them.  `guarded`: each iteration asks whether it is inside the
    stage's axes (a truth value or lanes).
    """

    programs: Programs
    structure: Structure
    bounds: Bounds
    k: int
    kernel: int
    loops: tuple[Loop, ...]
    own: int
    work: Work
    reads: tuple[BufferAccess, ...]
    write: BufferAccess
    unroll: Any
    guarded: Any = False

    @property
    def stage(self) -> Stage:
        return self.bounds.state.stages[self.k]

    @property
    def scope(self) -> str:
        return self.bounds.storage(self.k)

    @property
    def accesses(self) -> tuple[BufferAccess, ...]:
        return (*self.reads, self.write)

    @property
    def loops_around(self) -> tuple[Loop, ...]:
        return self.loops[: len(self.loops) - self.own]

    @property
    def own_loops(self) -> tuple[Loop, ...]:
        return self.loops[len(self.loops) - self.own :]

    @cached_property
    def footprint(self) -> Footprint:
        """How far the axes of the stage reach while loops run."""
        return Footprint(self.bounds, self.k, running(self.loops))

    def reaches(self, accesses: Sequence[BufferAccess], loops: Sequence[Sequence[Loop]]) -> list[Reach]:
        """What each access reaches while the loops from a depth on run, in rows by depth, from all loops to none.

        What is the same at all depths may have one row, or none.
        """
        runs: dict[LoopKey, Any] = {}
        for d, found in enumerate(loops):
            for x in found:
                runs[x.key] = runs.get(x.key, 1) * _within(x.extent, d, len(loops))
        axes = self.footprint.spans(runs)
        return [access.reach(axes) for access in accesses]

    def moved_axes(self, loops: Sequence[Loop]) -> frozenset[int]:
        """The axes of the stage that one of these loops may move."""
        spans = [span for x in loops for span in enumerate(self.footprint.spans_alone(x.key))]
        return frozenset([axis for axis, span in spans if not (isinstance(span, int) and span == 1)])


def loop_nests(programs: Programs) -> tuple[Nest, ...]:
    """The nests of all stages that are computed, in stage order."""
    bounds = programs.bounds
    hidden = frozenset([k for k, s in enumerate(bounds.state.stages) if s.where == INLINED])
    return tuple([_nest(programs, found, hidden) for found in nests_of(bounds).values()])


def _nest(programs: Programs, found: Structure, hidden: frozenset[int]) -> Nest:
    bounds, k = programs.bounds, found.stage
    own = len(found.loops) - found.around
    loops = tuple([_loop(programs, x.stage, x.uid, x.place, x.count, x.tag, x.reduce) for x in found.loops])
    accesses = reads_of(bounds, k)
    work = work_of(bounds.state.ops, hidden, k)
    write = buffer_access(bounds, k, None)
    over = guarded(bounds, k)
    return Nest(
        programs, found, bounds, k, found.root, loops, own, work, tuple(accesses), write, _unroll(programs, k), over
    )


def _loop(programs: Programs, k: int, uid: int, place: int, count: int, tag: str, reduce: bool) -> Loop:
    depth, lanes = programs.parallel.get(k), programs.vectorize.get(k)
    parallel = tag == "parallel" if depth is None else place < depth
    vector = tag == "vectorize" if lanes is None else place >= count - lanes
    extent: Any = programs.bounds.state.stages[k].vars[uid].extent
    return Loop(k, uid, 1.0 * extent, tag, reduce, parallel, vector)


def _unroll(programs: Programs, k: int) -> Any:
    """auto_unroll_max_step of a stage, which holds for the stages inside its loops, too."""
    stage = programs.bounds.state.stages[k]
    own = programs.unroll.get(k, stage.auto_unroll_max_step)
    return own if stage.attach is None else larger(own, _unroll(programs, stage.attach.stage))


@lru_cache(maxsize=1024)
def work_of(ops: tuple[Operation, ...], hidden: frozenset[int], k: int) -> Work:
    """The instructions of one iteration of stage k, with the stages `hidden` written into it.

    A multiplication whose product is added to something is one instruction with the addition.
    """
    bodies = expanded_bodies(ops, hidden)[k]
    counts = op_counts(bodies)
    kinds = {"mad": 1, "addsub": 1, "mul": 1, "divmod": 1, "cmp": 1, "mathfunc": CALL_OPERATIONS}
    arithmetic = sum([weight * counts.get(f"float_{kind}", 0) for kind, weight in kinds.items()])
    axes: dict[Var, int] = {v: n for n, v in enumerate((*ops[k].axis, *ops[k].reduce_axis))}
    tested: set[int] = set()
    for body in bodies[: 1 if ops[k].reduce_axis else None]:
        for node in walk(body):
            match node:
                case Call(func="if_then_else", args=(cond, _, _)) | Select(cond=cond):
                    tested |= {axes[v] for v in free_vars(cond) if v in axes}
    return Work(arithmetic, counts.get("select_op", 0), frozenset(tested))


def free_loops(nest: Nest, nests: Sequence[Nest]) -> tuple[Loop, ...]:
    """The own loops around nothing but this stage."""
    shared = {x.key for other in nests if other.k != nest.k for x in other.loops}
    inside = [n for n, loop in enumerate(nest.own_loops) if loop.key in shared]
    return nest.own_loops[max(inside, default=-1) + 1 :]


def extent_of_tags(loops: Sequence[Loop], tags: Sequence[str]) -> Any:
    """The product of the extents of the loops with these annotations."""
    return product([x.extent for x in loops if x.tag in tags])


def is_serial(loop: Loop) -> bool:
    """Neither blocks nor threads; virtual threads are one after the other in a thread."""
    return loop.tag not in BLOCKS and loop.tag not in THREADS


def largest(values: Sequence[Any]) -> Any:
    """The elementwise maximum of some ints or lanes; 1 for none."""
    return reduce(larger, values, 1)


def iterations(loops: Sequence[Loop]) -> Any:
    """How often the body of these loops runs."""
    return product([x.extent for x in loops])


def running(loops: Sequence[Loop]) -> dict[LoopKey, Any]:
    """All these loops run through."""
    return {x.key: x.extent for x in loops}


@recorded
def _within(extent: Any, depth: int, depths: int) -> Any:
    """The iterations of the loop at a depth while the loops from each depth on run: [depths + 1, lanes]."""
    rows = np.ones((depths + 1, np.size(extent)))
    rows[: depth + 1] = extent
    return rows


@recorded
def running_product(*counts: Any) -> Any:
    """[counts + 1, lanes]: the products of the first counts, from none of them to all."""
    rows = np.ones((len(counts) + 1, *np.broadcast_shapes((1,), *[np.shape(x) for x in counts])))
    for d, count in enumerate(counts):
        np.multiply(rows[d], count, out=rows[d + 1])
    return rows


@recorded
def least(moved: Any, fits: Any) -> Any:
    """[lanes]: the least of the rows that fit, and of the last one."""
    return np.minimum(np.min(np.where(fits, moved, np.inf)[:-1], axis=0, initial=np.inf), moved[-1])


def axes_of(access: BufferAccess) -> frozenset[int]:
    """The axes that occur in the indices of an access."""
    if access.forms is None:
        return frozenset(range(len(access.shape)))
    return frozenset().union(*[form_axes(form) for form in access.forms])


def innermost_within(loops: Sequence[Loop], limit: Any, partly: Any) -> dict[LoopKey, Any]:
    """How far each loop runs when only the innermost ones run, as long as they make at most `limit` iterations.

    The first loop that is too long runs in part, as far as that makes at most `partly` iterations.  Vector loops run,
    and count as one iteration.
    """
    runs: dict[LoopKey, Any] = {}
    inside: Any = 1
    going: Any = 1
    for loop in reversed(loops):
        count = np.where(loop.vector, 1, loop.extent)
        fits = going * np.where(np.less_equal(inside * count, limit), 1, 0)
        part = smaller(larger(partly // inside, 1), count)
        runs[loop.key] = np.where(np.logical_or(fits, loop.vector), loop.extent, part)
        inside = inside * count
        going = fits
    return runs
