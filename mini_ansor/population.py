"""Programs of sketches: drawn at random (section 4.3 of the paper), mutated, crossed and evolved (section 5.1).

A program is a sketch and its genes: lengths for the splits that the sketch left open, and a number from 0 to 1 for
every other decision of every stage.  `program` reads the genes in a fixed order, so that whatever mutation and
crossover do to them, the steps that come out are consistent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod

import numpy as np

from .bounds import Bounds, infer_bounds
from .program import Iter, Machine, State, StepError
from .sketch import annotate, crosses_threads, fuse, movable, own_splits, single_consumer, split
from .steps import ComputeAt, ComputeInline, ComputeRoot, FollowFusedSplit, Pragma, Split, replay

MAX_INNERMOST, MAX_VECTOR = 64, 16
UNROLL = {False: (0, 16, 64, 512), True: (0, 16, 64, 512, 1024)}
DECISIONS = ("location", "parallel", "unroll", "vectorize")
MUTATIONS = {False: (0.85, 0.04, 0.02, 0.04, 0.05), True: (0.9, 0.0, 0.0, 0.1, 0.0)}
"""How often a mutation moves a factor between the lengths of a split, or draws one of the `DECISIONS` again."""
CROSSED = 0.15
"""The share of children that have two parents."""


@dataclass(frozen=True)
class Genes:
    """`lengths` by the position of the split among the steps of the sketch, `draws` by decision and stage."""

    sketch: State
    lengths: dict[int, tuple[int, ...]]
    draws: dict[tuple[str, int], float]

    def number(self, decision: str, k: int, count: int) -> int:
        """The decision of stage k as one of `0 .. count-1`."""
        return min(int(self.draws.get((decision, k), 0.0) * count), count - 1)


@lru_cache(maxsize=4096)
def factorizations(extent: int, count: int) -> tuple[tuple[int, ...], ...]:
    """All `count` lengths whose product divides the extent; the last is at most `MAX_INNERMOST`."""
    if count == 0:
        return ((),)
    return tuple(
        (first, *rest)
        for first in range(1, extent + 1)
        if extent % first == 0 and (count > 1 or first <= MAX_INNERMOST)
        for rest in factorizations(extent // first, count - 1)
    )


def random_genes(sketch: State, rng: np.random.Generator) -> Genes:
    """Lengths and decisions, each with equal chances."""
    lengths = {}
    for position, step in enumerate(sketch.steps):
        if isinstance(step, Split) and None in step.lengths:
            found = factorizations(step.extent, len(step.lengths))
            lengths[position] = found[rng.integers(len(found))]
    draws = {(d, k): float(rng.random()) for d in DECISIONS for k in range(len(sketch.stages))}
    return Genes(sketch, lengths, draws)


def program(genes: Genes, machine: Machine) -> State | None:
    """The complete program of genes; None where they make none that the machine can run."""
    steps = list(genes.sketch.steps)
    for position, lengths in genes.lengths.items():
        open_split = steps[position]
        assert isinstance(open_split, Split)
        steps[position] = replace(open_split, lengths=lengths)
    try:
        state = replay(genes.sketch.args, steps)
        if machine.is_gpu:
            state = _unrolled(_bound(infer_bounds(state).state, machine), genes, machine)
            return state if _fits(infer_bounds(state), machine) else None
        state = infer_bounds(_placed(state, genes)).state
        return _vectorized(_unrolled(_parallel(state, genes, machine), genes, machine), genes)
    except StepError:
        return None


def _computed(state: State) -> list[int]:
    """The stages with loops, last first."""
    return [k for k, s in reversed(list(enumerate(state.stages))) if s.op.body is not None and s.where != "inlined"]


# --------------------------------------------------------------------------------------------------------------- CPU


def _placed(state: State, genes: Genes) -> State:
    """Stages that no rule tiled are inlined, left at root, or computed in a loop of their consumer."""
    for k in _computed(state):
        stage = state.stages[k]
        if len(stage.loops) != stage.roots or state.dag.tiled[k] or not movable(state, k) or state.dag.is_output(k):
            continue
        places = _places(state, k)
        choice = genes.number("location", k, len(places) + 2)
        if choice == 0 and stage.where == "iter" and not stage.op.reduce_axes:
            state = state.apply(ComputeInline(k))
        elif choice == 1 and stage.where != "root":
            state = state.apply(ComputeRoot(k))
        elif choice >= 2:
            state = state.apply(ComputeAt(k, *places[choice - 2]))
    return state


def _places(state: State, k: int) -> list[tuple[int, int]]:
    """The loops, as stage and position, that stage k may be computed in: of its consumer, and of the stage around."""
    t = single_consumer(state, k)
    if t is None:
        return []
    target, found, reduced = state.stages[t], [], False
    for position, it in enumerate(target.current):
        tiled = len(target.loops) != target.roots
        if (it.kind == "reduce" and not tiled) or (it.kind != "reduce" and reduced) or it.annotation == "unroll":
            break
        reduced = reduced or it.kind == "reduce"
        if it.extent == 1 or (target.at is not None and it.kind == "space" and it.name.endswith(".0")):
            continue
        found.append((t, position))
        if state.attached(t, it.id):
            break
    if target.at is not None:
        for position, it in enumerate(state.stages[target.at[0]].current):
            if it.kind == "reduce" or it.annotation == "unroll" or state.attached(target.at[0], it.id):
                break
            found += [(target.at[0], position)] if it.extent != 1 else []
    return found


def _parallel(state: State, genes: Genes, machine: Machine) -> State:
    """The outer loops of every root stage become one parallel loop: until cores have enough, or as the genes say."""
    for k in _computed(state):
        if state.stages[k].where == "root":
            state = _parallel_stage(state, k, genes, machine)
    return state


def _parallel_stage(state: State, k: int, genes: Genes, machine: Machine) -> State:
    loops: list[Iter] = []
    for it in state.stages[k].current:
        if it.kind == "reduce" or it.annotation != "none":
            break
        loops.append(it)
        if state.attached(k, it.id):
            break
    enough = [n for n in range(1, len(loops)) if prod(it.length for it in loops[:n]) > machine.num_cores * 16]
    count = min(enough, default=len(loops))
    draw = genes.draws.get(("parallel", k), 0.0)
    if draw > 0.8 and loops:
        count = 1 + min(int((draw - 0.8) * 5 * len(loops)), len(loops) - 1)
    if prod(it.length for it in loops[:count]) == 1:
        for child in state.attached(k, loops[-1].id) if loops else []:
            state = _parallel_stage(state, child, genes, machine)
        return state
    state, loop = fuse(state, k, [it.id for it in loops[:count]]) if count > 1 else (state, loops[0].id)
    return annotate(state, k, loop, "parallel")


def _vectorized(state: State, genes: Genes) -> State:
    """Inner loops of every stage become a vector of at most `MAX_VECTOR` elements; of a tiled stage one loop alone."""
    for k in _computed(state):
        stage, loops = state.stages[k], list[Iter]()
        for it in reversed(stage.current):
            tiled = len(stage.loops) != stage.roots
            free = it.kind == "space" and it.annotation == "none" and not state.attached(k, it.id)
            size = prod(i.length for i in loops) * it.length
            if not free or (tiled and loops) or size > MAX_VECTOR:
                break
            loops.insert(0, it)
        if loops:
            count = 1 + genes.number("vectorize", k, max(len(loops) - 1, 1))
            loops = loops[-count:]
            state, loop = fuse(state, k, [it.id for it in loops]) if len(loops) > 1 else (state, loops[0].id)
            state = annotate(state, k, loop, "vectorize")
    return state


def _unrolled(state: State, genes: Genes, machine: Machine) -> State:
    for k in _computed(state):
        if state.ops[k].reduce_axes:
            values = UNROLL[machine.is_gpu]
            limit = values[genes.number("unroll", k, len(values))]
            state = state.apply(Pragma(k, 0, f"auto_unroll_max_step${limit}"))
    return state


# --------------------------------------------------------------------------------------------------------------- GPU


def _bound(state: State, machine: Machine) -> State:
    """Loops become blocks and threads; `state` has extents, so those of copies in shared memory are for one thread."""
    tiled_roots = {}
    for k in _computed(state):
        at = state.stages[k].at
        if state.dag.tiled[k] and not crosses_threads(state, k):
            tiled_roots[k if at is None else at[0]] = k
    for k in _computed(state):
        stage = state.stages[k]
        if crosses_threads(state, k):
            state = _fused_prefix(state, k, "blockIdx.x") if stage.where == "root" else state
        elif any(it.annotation == "threadIdx.x" for it in stage.current):
            continue
        elif k in tiled_roots:
            state = _bound_tiles(state, k, machine)
        elif stage.where == "root":
            state = _bound_points(state, k, machine)
        elif stage.op.name.endswith(".shared"):
            state = _bound_fetch(state, k)
    return state


def _fused_prefix(state: State, k: int, annotation: str) -> State:
    loops = []
    for it in state.stages[k].current:
        if it.kind == "reduce" or it.annotation != "none":
            break
        loops.append(it.id)
        if state.attached(k, it.id):
            break
    state, loop = fuse(state, k, loops)
    return annotate(state, k, loop, annotation)


def _bound_points(state: State, k: int, machine: Machine) -> State:
    """A thread for each point."""
    loops = [it for it in state.stages[k].current if it.kind == "space"]
    state, loop = fuse(state, k, [it.id for it in loops]) if len(loops) != 1 else (state, loops[0].id)
    if state.stages[k].iters[loop].length <= machine.warp_size:
        return annotate(state, k, loop, "threadIdx.x")
    state, (block, thread) = split(state, k, loop, (machine.warp_size,))
    return annotate(annotate(state, k, block, "blockIdx.x"), k, thread, "threadIdx.x")


def _bound_tiles(state: State, k: int, machine: Machine) -> State:
    """The three outer levels of tiles are blocks, virtual threads and threads."""
    for level, annotation in enumerate(("blockIdx.x", "vthread", "threadIdx.x")):
        loops = [it.id for it in state.stages[k].current if it.name.endswith(f".{level}") and it.kind == "space"]
        state, loop = fuse(state, k, loops) if len(loops) > 1 else (state, loops[0])
        extent = state.stages[k].iters[loop].length
        few = prod(state.ops[k].shape) <= 2 * machine.warp_size
        if level == 1 and extent > machine.max_vthread_extent:
            raise StepError(f"{extent} virtual threads are too many")
        if level == 2 and extent < machine.warp_size and not few:
            raise StepError(f"{extent} threads are too few")
        state = annotate(state, k, loop, annotation)
    return state


def _bound_fetch(state: State, k: int) -> State:
    """Cooperative fetching: the threads of the block share the elements of a copy."""
    stage = state.stages[k]
    assert stage.at is not None
    target = stage.at[0]
    state, loop = fuse(state, k, list(stage.loops)) if len(stage.loops) > 1 else (state, stage.loops[0])
    state, (loop, vector) = split(state, k, loop, (1,))
    state = annotate(state, k, vector, "vectorize")
    space = own_splits(state, target)[len(state.ops[target].reduce_axes) :]
    state = state.apply(FollowFusedSplit(k, state.stages[k].loops.index(loop), tuple(space), 1, True))
    return annotate(state, k, state.stages[k].iters[-1].id, "threadIdx.x")


def _fits(bounds: Bounds, machine: Machine) -> bool:
    """Whether no block has too many threads or too much shared memory."""
    stages = bounds.state.stages
    shared = 4 * sum(
        prod(r.extent for r in bounds.regions[k][: s.rank])
        for k, s in enumerate(stages) if s.where == "iter" and bounds.scopes[k] == "shared"
    )  # fmt: skip
    threads = max(prod(it.length for it in s.current if "threadIdx" in it.annotation) for s in stages)
    return threads <= machine.max_threads_per_block and shared <= machine.max_shared_memory_per_block


# ---------------------------------------------------------------------------------------------------------- evolution


def mutated(genes: Genes, machine: Machine, rng: np.random.Generator) -> Genes:
    """One decision made anew; mostly, a factor of a loop moves to another level of its tiles."""
    kind = rng.choice(1 + len(DECISIONS), p=MUTATIONS[machine.is_gpu])
    if kind:
        decision = DECISIONS[kind - 1], int(rng.integers(len(genes.sketch.stages)))
        return replace(genes, draws={**genes.draws, decision: float(rng.random())})
    movable_splits = [p for p in genes.lengths if genes.sketch.steps[p].extent > 1]  # type: ignore[attr-defined]
    if not movable_splits:
        return genes
    position = int(rng.choice(movable_splits))
    step = genes.sketch.steps[position]
    assert isinstance(step, Split)
    lengths = [step.extent // prod(genes.lengths[position]), *genes.lengths[position]]
    source = int(rng.choice([n for n, length in enumerate(lengths) if length > 1]))
    target = int(rng.choice([n for n in range(len(lengths)) if n != source]))
    factor = int(rng.choice([f for f in range(2, lengths[source] + 1) if lengths[source] % f == 0]))
    lengths[source], lengths[target] = lengths[source] // factor, lengths[target] * factor
    if lengths[-1] > MAX_INNERMOST:
        return genes
    return replace(genes, lengths={**genes.lengths, position: tuple(lengths[1:])})


def crossed(a: Genes, b: Genes, rng: np.random.Generator) -> Genes:
    """The decisions of each stage from one parent or the other; both are of one sketch."""
    first = {k: bool(rng.integers(2)) for k in range(len(a.sketch.stages) + 1)}
    lengths = {p: (a if first[a.sketch.steps[p].stage] else b).lengths[p] for p in a.lengths}
    return Genes(a.sketch, lengths, {key: (a if first[key[1]] else b).draws[key] for key in a.draws})


Scored = tuple[float, State, Genes]


def evolve(
    start: Sequence[Genes],
    score: Callable[[Sequence[State]], np.ndarray],
    machine: Machine,
    rng: np.random.Generator,
    size: int = 64,
    generations: int = 4,
) -> list[Scored]:
    """All programs that were looked at, best first: those of `start`, and of generations of `size` children."""
    seen: dict[str, Scored] = {}
    front = list(start)
    for generation in range(generations + 1):
        made = [(genes, state) for genes in front if (state := program(genes, machine)) is not None]
        new = {text: found for found in made if (text := str(found[1])) not in seen}
        scores = score([state for _, state in new.values()])
        seen |= {text: (float(s), state, genes) for s, (text, (genes, state)) in zip(scores, new.items(), strict=True)}
        parents = sorted(seen.values(), key=lambda found: -found[0])[:size]
        if generation < generations and parents:
            front = _children([genes for _, _, genes in parents], [s for s, _, _ in parents], machine, rng, size)
    return sorted(seen.values(), key=lambda found: -found[0])


def _children(
    parents: Sequence[Genes], scores: Sequence[float], machine: Machine, rng: np.random.Generator, size: int
) -> list[Genes]:
    """Children of parents, which are drawn by their scores."""
    weights = np.array(scores) - min(scores) + 1e-3
    out = []
    for n in rng.choice(len(parents), size=size, p=weights / weights.sum()):
        others = [other for other in parents if other.sketch is parents[n].sketch]
        if rng.random() < CROSSED:
            out.append(crossed(parents[n], others[rng.integers(len(others))], rng))
        else:
            out.append(mutated(parents[n], machine, rng))
    return out
