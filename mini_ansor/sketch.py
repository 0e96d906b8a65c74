"""Sketches: the structures of programs, derived by ten rules (section 4.1 of the paper).

Stages are visited from the last to the first.  Every rule that applies to a stage makes new states, each with the
stage to visit next; a sketch is a state whose stages are all visited.  Tile sizes are holes (None): the structure of
loops is decided here, and everything else when a sketch is sampled.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod

from .expr import Op
from .program import SIMPLIFY, Length, Machine, SplitRel, State, Step, initial
from . import steps

Next = tuple[State, int]


@dataclass(frozen=True)
class Applied:
    """What a rule made of a state."""

    following: list[Next]
    rest: bool = False  # whether later rules are also tried on the unchanged state


Rule = Callable[[Machine, State, int], Applied | None]


def generate_sketches(args: Sequence[Op], machine: Machine) -> list[State]:
    """All sketches of the computation of `args`, those that took fewer visits first."""
    start, found = initial(args), []
    queue: list[Next] = [(start, len(start.stages) - 1)]
    while queue:
        state, k = queue.pop(0)
        if k < 0:
            found.append(open_factors(state))
            continue
        for rule in GPU_RULES if machine.is_gpu else CPU_RULES:
            applied = rule(machine, state, k)
            queue += applied.following if applied is not None else []
            if applied is not None and not applied.rest:
                break
    return found


# ------------------------------------------------------------------------------------------------------------- rules
def skip(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 1: leave the stage as it is."""
    return Applied([(state, k - 1)])


def always_inline(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 2: inline what repeats no work, on a GPU all that can be."""
    return Applied([(steps.compute_inline(state, k), k - 1)]) if inlined_always(machine, state, k) else None


def tile(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 3: tiles at several levels for a stage that reuses what it reads."""
    return Applied([(tiles(state, k, machine.structure)[0], k - 1)]) if state.dag.tiled[k] else None


def tile_with_fusion(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 4: tile the stage and its consumer alike, and compute the stage inside a tile of the consumer."""
    target = fusion_target(state, k)
    if not state.dag.tiled[k] or target is None:
        return None
    tiled, splits = tiles(state, k, machine.structure)
    following = []
    for level in (3,) if machine.is_gpu else (1, 2):
        fused = follow_tiles(tiled, target, splits, level)
        following.append((steps.compute_at(fused, k, target, level * len(splits) - 1), k - 1))
    return Applied(following, rest=not machine.is_gpu and not made_by(state, k, "CHW"))


def cache_write(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 5: accumulate in a cache, whose copy to memory is a consumer that the stage can be fused with."""
    if not state.dag.tiled[k] or fusion_target(state, k) is not None or not state.ops[k].axes:
        return None
    return Applied([(steps.cache_write(state, k, "local"), k)], rest=not machine.is_gpu)


def rfactor(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 6: make an axis of a reduction that is longer than the space around it, for cores or for vectors."""
    if not long_reduction(machine, state, k):
        return None
    rank = state.stages[k].rank
    state, fused = fuse(state, k, [it.id for it in state.stages[k].current if it.kind == "reduce"])
    state, parts = split(state, k, fused, (1,))
    following = []
    for part in parts:
        factored = steps.rfactor(state, k, state.stages[k].loops.index(part), rank)
        if part == parts[1]:  # the factored axis becomes the innermost loop, for vectors
            loops = factored.stages[k].loops
            factored = reorder(factored, k, (*loops[:rank], *loops[rank + 1 :], loops[rank]))
        following.append((factored, k - 1))
    return Applied(following, rest=True)


def cross_thread(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 6 on a GPU: the threads of a block share a reduction, inside its consumer where their loops agree."""
    if not long_reduction(machine, state, k):
        return None
    state, fused = fuse(state, k, [it.id for it in state.stages[k].current if it.kind == "reduce"])
    target, common, source = single_consumer(state, k), 0, None
    if target is not None and state.stages[target].where == "root" and not state.dag.tiled[target]:
        common = 0 if state.is_argument(k) else min(state.dag.common_outer(k, target), default=0)
    if target is not None and common:
        state, source = thread_split(state, target, machine.warp_size)
    if target is None or source is None:
        return Applied([(bind_inner(state, k, fused, machine.warp_size), k - 1)], rest=True)
    state = steps.follow_split(state, k, state.stages[k].loops.index(fused), source, 1)
    state = annotate(state, k, state.stages[k].iters[-1].id, "threadIdx.x")
    return Applied([(steps.compute_at(state, k, target, common - 1), k - 1)], rest=True)


def cache_read(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 5 for what a tiled stage reads: a copy in shared memory for each iteration of its outer reduction loops."""
    readers, dag = consumers(state, k), state.dag
    reductions = [r for r in readers if dag.tiled[r] and state.ops[r].reduce_axes and not crosses_threads(state, r)]
    fetching = [r for r in reductions if k in dag.reads[r] and len(dag.places_read(r, k)) == 1]
    if not fetching or fetching[0] != readers[0]:
        return None
    for inserted, r in enumerate(fetching):
        state = steps.cache_read(state, k, "shared", (r + inserted,))
        target = r + inserted + 1
        loops = enumerate(state.stages[target].current)
        outer = max(position for position, it in loops if it.kind == "reduce" and it.name.endswith(".0"))
        state = steps.compute_at(state, k + 1, target, outer)
    return Applied([(state, k)])


def const_tensor(machine: Machine, state: State, k: int) -> Applied | None:
    """Winograd: unroll the axes that index a constant matrix, and tile the others once."""
    named = dict(state.ops[k].attrs).get(SIMPLIFY)
    if named is None:
        return None
    outer, inner, unrolled = [], [], []
    for it in state.stages[k].current:
        if state.ops[k].all_axes[it.id].name in named:
            state = annotate(state, k, it.id, "unroll")
            unrolled.append(it.id)
        else:
            state, parts = split(state, k, it.id, (None,))
            outer.append(parts[0])
            inner.append(parts[1])
    return Applied([(reorder(state, k, (*outer, *inner, *unrolled)), k - 1)])


def const_location(machine: Machine, state: State, k: int) -> Applied | None:
    """Winograd: compute the tile that a constant matrix multiplies right before the unrolled loops of the product."""
    readers = consumers(state, k)
    if not state.dag.reads[k] or not inlined_always(machine, state, k) or len(readers) != 1:
        return None
    target = state.stages[readers[0]]
    unrolled = [p for p, it in enumerate(target.current) if it.annotation == "unroll"]
    if SIMPLIFY not in dict(target.op.attrs) or not unrolled or not unrolled[0]:
        return None
    return Applied([(steps.compute_at(state, k, readers[0], unrolled[0] - 1), k - 1)])


CPU_RULES: tuple[Rule, ...] = (always_inline, const_tensor, rfactor, cache_write, tile_with_fusion, tile, skip)
GPU_RULES = (cache_read, const_location, always_inline, const_tensor, cross_thread, *CPU_RULES[3:])


# --------------------------------------------------------------------------------------------------------- questions
def consumers(state: State, k: int) -> list[int]:
    """The stages that read stage k, through inlined ones."""
    readers = state.dag.readers[k]
    return sorted({c for r in readers for c in (consumers(state, r) if state.stages[r].where == "inlined" else [r])})


def single_consumer(state: State, k: int) -> int | None:
    """The only consumer; of several, the root stage that all of them are or are computed in."""
    readers = consumers(state, k)
    if len(readers) > 1:
        readers = list({r if (at := state.stages[r].at) is None else at[0] for r in readers})
    return readers[0] if len(readers) == 1 else None


def fusion_target(state: State, k: int) -> int | None:
    """The consumer that can take stage k into its tiles: the only one, point by point, with loops as written."""
    readers = consumers(state, k)
    if len(readers) != 1 or state.is_argument(k):
        return None
    target = state.stages[readers[0]]
    plain = all(it.kind == "space" for it in target.current) and len(target.loops) == target.roots
    fits = plain and not target.op.name.endswith(".shared") and state.dag.elementwise_match(k, readers[0])
    return readers[0] if fits and state.ops[k].axes else None


def inlined_always(machine: Machine, state: State, k: int) -> bool:
    """`IsStrictInlinable`; a GPU computes again what it would have to keep."""
    stage = state.stages[k]
    if state.is_argument(k) or state.dag.is_output(k) or any(it.kind != "space" for it in stage.current):
        return False
    return machine.is_gpu or (stage.where != "iter" and state.dag.strictly_inlineable(k))


def crosses_threads(state: State, k: int) -> bool:
    """Whether threads share a reduction of stage k, or of one that is computed in it."""
    inside = [k, *[n for n, s in enumerate(state.stages) if s.at is not None and s.at[0] == k]]
    return any(it.kind == "reduce" and it.annotation == "threadIdx.x" for n in inside for it in state.stages[n].current)


def long_reduction(machine: Machine, state: State, k: int) -> bool:
    """Whether stage k folds so much, for so little space, that several cores or threads should share it."""
    if state.ops[k].body is None or made_by(state, k, "CHW"):
        return False
    loops = [(it.kind, -1 if it.extent is None else it.extent) for it in state.stages[k].current]
    space, reduce = (prod(extent for kind, extent in loops if kind == wanted) for wanted in ("space", "reduce"))
    if not state.dag.tiled[k]:
        return reduce > max(1, machine.warp_size if machine.is_gpu else machine.num_cores)
    if machine.is_gpu:
        return space <= machine.max_threads_per_block and space < reduce
    return space <= reduce and space <= machine.num_cores * 16


def traced(state: State, k: int) -> Iterator[tuple[int, Step]]:
    """The steps on the stage that is now number k, last first, with their positions."""
    for position, step in reversed(list(enumerate(state.steps))):
        if step.args[0] == k:
            yield position, step
        if step.tag in ("CHR", "CHW", "RF") and k > step.args[0]:
            k -= 1


def made_by(state: State, k: int, tag: str) -> bool:
    """Whether stage k was inserted by a step of this kind."""
    return any(step.tag == tag for _, step in traced(state, k))


def own_splits(state: State, k: int) -> list[int]:
    """The positions of the splits of stage k, last first; those before a step that made it anew are not its own."""
    count = sum(isinstance(rel, SplitRel) for rel in state.stages[k].relations)
    found = [(position, step.tag) for position, step in traced(state, k) if step.tag in ("SP", "FSP", "FFSP")]
    return [position for position, tag in found[:count] if tag == "SP"]


# ----------------------------------------------------------------------------------------- steps that name loops by id
def split(state: State, k: int, loop: int, lengths: Sequence[Length]) -> tuple[State, tuple[int, ...]]:
    """The state after a split, and the ids of the new loops."""
    stage = state.stages[k]
    state = steps.split(state, k, stage.loops.index(loop), stage.iters[loop].extent or 0, tuple(lengths), 1)
    return state, state.stages[k].loops[stage.loops.index(loop) :][: len(lengths) + 1]


def fuse(state: State, k: int, loops: Sequence[int]) -> tuple[State, int]:
    """The state with some loops as one, and the id of that."""
    if len(loops) == 1:
        return state, loops[0]
    state = steps.fuse(state, k, tuple(state.stages[k].loops.index(i) for i in loops))
    return state, state.stages[k].iters[-1].id


def reorder(state: State, k: int, loops: Sequence[int]) -> State:
    return steps.reorder(state, k, tuple(state.stages[k].loops.index(i) for i in loops))


def annotate(state: State, k: int, loop: int, annotation: str) -> State:
    return steps.annotate(state, k, state.stages[k].loops.index(loop), annotation)


def bind_inner(state: State, k: int, loop: int, threads: int) -> State:
    state, parts = split(state, k, loop, (threads,))
    return annotate(state, k, parts[1], "threadIdx.x")


def thread_split(state: State, k: int, threads: int) -> tuple[State, int | None]:
    """The position of the split of stage k into threads, made where nothing was done to it; None where it has none."""
    stage, splits = state.stages[k], own_splits(state, k)
    as_written = len(stage.loops) == stage.roots and all(it.kind == "space" for it in stage.current)
    if not splits and as_written:
        state = bind_inner(state, k, stage.loops[-1], threads)
        return state, len(state.steps) - 2
    bound = any(it.annotation == "threadIdx.x" for it in stage.current)
    return state, splits[0] if len(splits) == 1 and bound else None


def tiles(state: State, k: int, structure: str) -> tuple[State, list[int]]:
    """Stage k in tiles whose sizes are open, and the positions of the splits of its space axes."""
    parts: dict[str, list[tuple[int, ...]]] = {"S": [], "R": []}
    splits = []
    for it in state.stages[k].current:
        kind = "S" if it.kind == "space" else "R"
        state, new = split(state, k, it.id, (None,) * (structure.count(kind) - 1))
        parts[kind].append(new)
        splits += [len(state.steps) - 1] if kind == "S" else []
    levels = {kind: zip(*found, strict=True) for kind, found in parts.items()}
    return reorder(state, k, [i for kind in structure for i in next(levels[kind], ())]), splits


def follow_tiles(state: State, k: int, splits: Sequence[int], n: int) -> State:
    """Stage k in n + 1 levels of tiles that are as large as those that `splits` made of another stage."""
    parts = []
    for it, source in zip(state.stages[k].current, splits, strict=True):
        state = steps.follow_split(state, k, state.stages[k].loops.index(it.id), source, n)
        parts.append([part.id for part in state.stages[k].iters[-n - 1 :]])
    return reorder(state, k, [i for level in zip(*parts, strict=True) for i in level])


def open_factors(state: State) -> State:
    """The sketch with the factor of each rfactor as a hole; the walk needed a number there, and took 1."""
    made = list(state.steps)
    for position, (before, step) in enumerate(itertools.pairwise(state.steps)):
        if (before.tag, step.tag) == ("SP", "RF"):
            made[position] = Step("SP", (*before.args[:3], (None,), 1))
    return replace(state, steps=tuple(made))
