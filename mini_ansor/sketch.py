"""Sketches: the structures of programs, derived by ten rules (section 4.1 of the paper).

Stages are visited from the last to the first.  Every rule that applies to a stage makes new states, each with the
stage to visit next; a sketch is a state whose stages are all visited.  Tile sizes are holes (None): the structure of
loops is decided here, and everything else when a sketch is sampled.

    rule                 CPU  GPU   of the paper
    cache_read                 x    5 for inputs: copies in shared memory
    const_location             x    (winograd: the tile of the input that a constant matrix multiplies)
    always_inline         x    x    2
    const_tensor          x    x    (winograd: the product with the constant matrix is unrolled)
    rfactor               x         6
    cross_thread               x    6 for GPUs
    cache_write           x    x    5
    tile_with_fusion      x    x    4
    tile                  x    x    3
    skip                  x    x    1
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

from .expr import Op
from .program import SIMPLIFY, Length, Machine, SplitRel, Stage, State, Step, initial
from .steps import Annotate, CacheRead, CacheWrite, ComputeAt, ComputeInline
from .steps import FollowFusedSplit, FollowSplit, Fuse, Reorder, RFactor, Split

Next = tuple[State, int]


@dataclass(frozen=True)
class Applied:
    """What a rule made of a state; with `rest` the rules behind it look at the old state, too."""

    following: list[Next]
    rest: bool = False


Rule = Callable[[Machine, State, int], Applied | None]


def generate_sketches(args: Sequence[Op], machine: Machine) -> list[State]:
    """All sketches of the computation of `args`, those that took fewer visits first."""
    start = initial(args)
    front: list[Next] = [(start, len(start.stages) - 1)]
    found = []
    while front:
        following: list[Next] = []
        for state, k in front:
            if k < 0:
                found.append(open_factors(state))
                continue
            for rule in GPU_RULES if machine.is_gpu else CPU_RULES:
                applied = rule(machine, state, k)
                following += applied.following if applied is not None else []
                if applied is not None and not applied.rest:
                    break
        front = following
    return found


# ------------------------------------------------------------------------------------------------------------- rules


def skip(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 1: leave the stage as it is."""
    return Applied([(state, k - 1)])


def always_inline(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 2: inline what repeats no work, on a GPU all that can be."""
    return Applied([(state.apply(ComputeInline(k)), k - 1)]) if inlined_always(machine, state, k) else None


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
        following.append((fused.apply(ComputeAt(k, target, level * len(splits) - 1)), k - 1))
    return Applied(following, rest=not machine.is_gpu and not made_by(state, k, CacheWrite))


def cache_write(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 5: accumulate in a cache, whose copy to memory is a consumer that the stage can be fused with."""
    if not state.dag.tiled[k] or fusion_target(state, k) is not None or not state.ops[k].axes:
        return None
    return Applied([(state.apply(CacheWrite(k, "local")), k)], rest=not machine.is_gpu)


def rfactor(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 6: make an axis of a reduction that is longer than the space around it, for cores or for vectors."""
    if state.ops[k].body is None or made_by(state, k, CacheWrite):
        return None
    space, reduce = loop_length(state.stages[k], "space"), loop_length(state.stages[k], "reduce")
    if state.dag.tiled[k]:
        fits = space <= reduce and space <= machine.num_cores * 16
    else:
        fits = reduce > max(1, machine.num_cores)
    if not fits:
        return None
    rank = state.stages[k].rank
    state, fused = fuse_reductions(state, k)
    state, parts = split(state, k, fused, (1,))
    following = []
    for part in parts:
        factored = state.apply(RFactor(k, state.stages[k].loops.index(part), rank))
        if part == parts[1]:  # the factored axis becomes the innermost loop, for vectors
            loops = factored.stages[k].loops
            factored = reorder(factored, k, (*loops[:rank], *loops[rank + 1 :], loops[rank]))
        following.append((factored, k - 1))
    return Applied(following, rest=True)


def cross_thread(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 6 on a GPU: the threads of a block share a reduction, inside its consumer where their loops agree."""
    if state.ops[k].body is None or made_by(state, k, CacheWrite):
        return None
    space, reduce = loop_length(state.stages[k], "space"), loop_length(state.stages[k], "reduce")
    if state.dag.tiled[k]:
        fits = space <= machine.max_threads_per_block and space < reduce
    else:
        fits = reduce > max(1, machine.warp_size)
    if not fits:
        return None
    state, fused = fuse_reductions(state, k)
    target = single_consumer(state, k)
    common = 0
    if target is not None and state.stages[target].where == "root" and not state.dag.tiled[target]:
        common = state.dag.common_outer_path(k, target) if movable(state, k) else 0
    source = None
    if target is not None and common:
        state, source = thread_split(state, target, machine.warp_size)
    if target is None or source is None:
        return Applied([(bind_inner(state, k, fused, machine.warp_size), k - 1)], rest=True)
    state = state.apply(FollowSplit(k, state.stages[k].loops.index(fused), source, 1))
    state = annotate(state, k, state.stages[k].iters[-1].id, "threadIdx.x")
    return Applied([(state.apply(ComputeAt(k, target, common - 1)), k - 1)], rest=True)


def cache_read(machine: Machine, state: State, k: int) -> Applied | None:
    """Rule 5 for what a tiled stage reads: a copy in shared memory for each turn of its outer reduction loops."""
    readers = consumers(state, k)
    if not readers or not fetches(state, k, readers[0]):
        return None
    for inserted, r in enumerate([r for r in readers if fetches(state, k, r)]):
        state = state.apply(CacheRead(k, "shared", (r + inserted,)))
        target = r + inserted + 1
        state = state.apply(ComputeAt(k + 1, target, fetch_loop(state.stages[target])))
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
    if not producers(state, k) or not inlined_always(machine, state, k) or len(readers) != 1:
        return None
    target = state.stages[readers[0]]
    unrolled = [p for p, it in enumerate(target.current) if it.annotation == "unroll"]
    if SIMPLIFY not in dict(target.op.attrs) or not unrolled or not unrolled[0]:
        return None
    return Applied([(state.apply(ComputeAt(k, readers[0], unrolled[0] - 1)), k - 1)])


CPU_RULES: tuple[Rule, ...] = (always_inline, const_tensor, rfactor, cache_write, tile_with_fusion, tile, skip)
GPU_RULES: tuple[Rule, ...] = (
    cache_read, const_location, always_inline, const_tensor, cross_thread, cache_write, tile_with_fusion, tile, skip,
)  # fmt: skip


# --------------------------------------------------------------------------------------------------------- questions


def consumers(state: State, k: int) -> list[int]:
    """The stages that read stage k, through inlined ones."""
    return _through_inlined(state, state.dag.readers, k)


def producers(state: State, k: int) -> list[int]:
    """The stages that stage k reads, through inlined ones."""
    return _through_inlined(state, state.dag.reads, k)


def _through_inlined(state: State, links: Sequence[dict[int, Any]], k: int) -> list[int]:
    found: set[int] = set()
    todo = list(links[k])
    while todo:
        other = todo.pop()
        if state.stages[other].where == "inlined":
            todo += links[other]
        else:
            found.add(other)
    return sorted(found)


def movable(state: State, k: int) -> bool:
    """Whether stage k may be computed elsewhere: it is no argument of the program, all of which must be there."""
    return not state.is_argument(k)


def single_consumer(state: State, k: int) -> int | None:
    """The only consumer; of several, the root stage that all of them are or are computed in."""
    readers = consumers(state, k)
    if len(readers) > 1:
        places = [(r, state.stages[r].at) for r in readers]
        readers = list({r if at is None else at[0] for r, at in places})
    return readers[0] if len(readers) == 1 else None


def fusion_target(state: State, k: int) -> int | None:
    """The consumer that can take stage k into its tiles: the only one, point by point, with loops as written."""
    readers = consumers(state, k)
    if len(readers) != 1 or not movable(state, k):
        return None
    target = state.stages[readers[0]]
    plain = all(it.kind == "space" for it in target.current) and len(target.loops) == target.roots
    fits = plain and not target.op.name.endswith(".shared") and state.dag.elementwise_match(k, readers[0])
    return readers[0] if fits and state.ops[k].axes else None


def inlined_always(machine: Machine, state: State, k: int) -> bool:
    """`IsStrictInlinable`; a GPU computes again what it would have to keep."""
    stage = state.stages[k]
    if not movable(state, k) or state.dag.is_output(k) or any(it.kind != "space" for it in stage.current):
        return False
    return machine.is_gpu or (stage.where != "iter" and state.dag.strictly_inlineable(k))


def fetches(state: State, k: int, reader: int) -> bool:
    """Whether `reader` is a tiled reduction, without threads that share it, that reads stage k itself."""
    reduces = bool(state.ops[reader].reduce_axes) and not crosses_threads(state, reader)
    return state.dag.tiled[reader] and reduces and k in state.dag.reads[reader]


def crosses_threads(state: State, k: int) -> bool:
    """Whether threads share a reduction of stage k, or of one that is computed in it."""
    inside = [k, *[n for n, s in enumerate(state.stages) if s.at is not None and s.at[0] == k]]
    return any(it.kind == "reduce" and it.annotation == "threadIdx.x" for n in inside for it in state.stages[n].current)


def fetch_loop(stage: Stage) -> int:
    """The position of the loop at which the outermost tile of the reduction is complete."""
    axes = set(range(stage.rank, stage.roots))
    for position, it in enumerate(stage.current):
        if it.kind == "reduce":
            axes -= {root_of(stage, it.id)}
            if not axes:
                return position
    raise ValueError(f"{stage.op.name}: it has no reduction")


def root_of(stage: Stage, i: int) -> int:
    """The axis that iterator `i` was split from; of a fused one, itself."""
    for rel in reversed(stage.relations):
        if isinstance(rel, SplitRel) and i in rel.parts:
            i = rel.parent
    return i


def loop_length(stage: Stage, kind: str) -> int:
    """The product of the extents of the loops of one kind; one that is not known counts as -1."""
    return prod(-1 if it.extent is None else it.extent for it in stage.current if it.kind == kind)


def traced(state: State, k: int) -> Iterator[tuple[int, Step]]:
    """The steps on the stage that is now number k, last first, with their positions."""
    for position, step in reversed(list(enumerate(state.steps))):
        if step.stage == k:
            yield position, step
        if isinstance(step, CacheRead | CacheWrite | RFactor) and k > step.stage:
            k -= 1


def made_by(state: State, k: int, kind: type[Step]) -> bool:
    """Whether stage k was inserted by a step of this kind."""
    return any(isinstance(step, kind) for _, step in traced(state, k))


def own_splits(state: State, k: int) -> list[int]:
    """The positions of the splits of stage k, last first; those before a step that made it anew are not its own."""
    count = sum(isinstance(rel, SplitRel) for rel in state.stages[k].relations)
    kinds = (Split, FollowSplit, FollowFusedSplit)
    steps = [(position, step) for position, step in traced(state, k) if isinstance(step, kinds)][:count]
    return [position for position, step in steps if isinstance(step, Split)]


# ----------------------------------------------------------------------------------------- steps that name loops by id


def split(state: State, k: int, loop: int, lengths: Sequence[Length]) -> tuple[State, tuple[int, ...]]:
    """The state after a split, and the ids of the new loops."""
    stage = state.stages[k]
    extent = stage.iters[loop].extent or 0
    state = state.apply(Split(k, stage.loops.index(loop), extent, tuple(lengths)))
    return state, tuple(it.id for it in state.stages[k].iters[-len(lengths) - 1 :])


def fuse(state: State, k: int, loops: Sequence[int]) -> tuple[State, int]:
    """The state after fusing, and the id of the new loop."""
    state = state.apply(Fuse(k, tuple(state.stages[k].loops.index(i) for i in loops)))
    return state, state.stages[k].iters[-1].id


def reorder(state: State, k: int, loops: Sequence[int]) -> State:
    return state.apply(Reorder(k, tuple(state.stages[k].loops.index(i) for i in loops)))


def annotate(state: State, k: int, loop: int, annotation: str) -> State:
    return state.apply(Annotate(k, state.stages[k].loops.index(loop), annotation))


def bind_inner(state: State, k: int, loop: int, threads: int) -> State:
    state, parts = split(state, k, loop, (threads,))
    return annotate(state, k, parts[1], "threadIdx.x")


def fuse_reductions(state: State, k: int) -> tuple[State, int]:
    """All reduction loops of stage k as one."""
    loops = [it.id for it in state.stages[k].current if it.kind == "reduce"]
    return (state, loops[0]) if len(loops) == 1 else fuse(state, k, loops)


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
    levels: dict[str, list[list[int]]] = {c: [[] for _ in range(structure.count(c))] for c in "SR"}
    splits = []
    for it in state.stages[k].current:
        kind = "S" if it.kind == "space" else "R"
        state, parts = split(state, k, it.id, (None,) * (len(levels[kind]) - 1))
        splits += [len(state.steps) - 1] if kind == "S" else []
        for level, part in zip(levels[kind], parts, strict=True):
            level.append(part)
    ready = {kind: iter(found) for kind, found in levels.items()}
    return reorder(state, k, [i for letter in structure for i in next(ready[letter])]), splits


def follow_tiles(state: State, k: int, splits: Sequence[int], n: int) -> State:
    """Stage k in n + 1 levels of tiles that are as large as those that `splits` made of another stage."""
    levels: list[list[int]] = [[] for _ in range(n + 1)]
    for it, source in zip(state.stages[k].current, splits, strict=True):
        state = state.apply(FollowSplit(k, state.stages[k].loops.index(it.id), source, n))
        for level, part in zip(levels, state.stages[k].iters[-n - 1 :], strict=True):
            level.append(part.id)
    return reorder(state, k, [i for level in levels for i in level])


def open_factors(state: State) -> State:
    """The sketch with the factor of each rfactor as a hole; the walk needed a number there, and took 1."""
    steps = list(state.steps)
    for position, step in enumerate(steps):
        before = steps[position - 1]
        if isinstance(step, RFactor) and isinstance(before, Split):
            steps[position - 1] = replace(before, lengths=(None,))
    return replace(state, steps=tuple(steps))
