"""Programs of sketches: drawn at random (section 4.2 of the paper), mutated, crossed and evolved (section 5.1).

A program is a sketch and its genes: lengths for its open splits, and a number from 0 to 1 for every other decision of
every stage.  `program` reads them in a fixed order: its steps fit together, whatever mutation and crossover do.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from .bounds import Bounds
from .program import Iter, Machine, State, Step, StepError
from .sketch import annotate, crosses_threads, fuse, own_splits, single_consumer, split
from . import steps

Rng = np.random.Generator
MAX_INNERMOST, MAX_VECTOR = 64, 16
UNROLL = {False: (0, 16, 64, 512), True: (0, 16, 64, 512, 1024)}
DECISIONS = ("location", "parallel", "unroll", "vectorize")
MUTATIONS = {False: (0.85, 0.04, 0.02, 0.04, 0.05), True: (0.9, 0.0, 0.0, 0.1, 0.0)}
"""How often a mutation moves a factor between the lengths of a split, or draws one of the `DECISIONS` again."""
CROSSED = 0.15  # the share of children that have two parents


@dataclass(frozen=True)
class Genes:
    """`lengths` by the position of the split among the steps of the sketch, `draws` by decision and stage."""

    sketch: State
    lengths: dict[int, tuple[int, ...]]
    draws: dict[tuple[str, int], float]

    def number(self, decision: str, k: int, count: int) -> int:
        """The decision of stage k as one of `0 .. count-1`."""
        return int(self.draws[decision, k] * count)


Scored = tuple[float, State, Genes]
Score = Callable[[Sequence[State]], np.ndarray]


def factorizations(extent: int, count: int) -> tuple[tuple[int, ...], ...]:
    """All `count` lengths whose product divides the extent; the last is at most `MAX_INNERMOST`."""
    if count == 0:
        return ((),)
    most = extent if count > 1 else MAX_INNERMOST
    firsts = [n for n in range(1, min(extent, most) + 1) if extent % n == 0]
    return tuple((first, *rest) for first in firsts for rest in factorizations(extent // first, count - 1))


def random_genes(sketch: State, rng: Rng) -> Genes:
    """Lengths and decisions, each with equal chances."""
    lengths = {}
    for position, step in enumerate(sketch.steps):
        if step.tag == "SP" and None in step.args[3]:
            found = factorizations(step.args[2], len(step.args[3]))
            lengths[position] = found[rng.integers(len(found))]
    draws = {(d, k): float(rng.random()) for d in DECISIONS for k in range(len(sketch.stages))}
    return Genes(sketch, lengths, draws)


def program(genes: Genes, machine: Machine) -> State | None:
    """The complete program of genes; None where they make none that the machine can run."""
    made = list(genes.sketch.steps)
    for position, lengths in genes.lengths.items():
        made[position] = Step("SP", (*made[position].args[:3], lengths, 1))
    try:
        state = steps.replay(genes.sketch.args, made)
        if machine.is_gpu:
            state = _unrolled(_bound(Bounds(state).state, machine), genes, machine)
            bounds = Bounds(state)
            sizes = [prod(r.extent for r in bounds.regions[k][: s.rank]) for k, s in enumerate(bounds.stages)]
            shared = 4 * sum(size for size, scope in zip(sizes, bounds.scopes, strict=True) if scope == "shared")
            threads = max(prod(it.length for it in s.current if "threadIdx" in it.annotation) for s in bounds.stages)
            fits = threads <= machine.max_threads_per_block and shared <= machine.max_shared_memory_per_block
            return state if fits else None
        state = Bounds(_placed(state, genes)).state
        for k in _computed(state):
            state = _parallel(state, k, genes, machine) if state.stages[k].where == "root" else state
        return _vectorized(_unrolled(state, genes, machine), genes)
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
        if len(stage.loops) != stage.roots or state.dag.tiled[k] or state.is_argument(k) or state.dag.is_output(k):
            continue
        places = _places(state, k)
        choice = genes.number("location", k, len(places) + 2)
        if choice == 0 and stage.where == "iter" and not stage.op.reduce_axes:
            state = steps.compute_inline(state, k)
        elif choice == 1 and stage.where != "root":
            state = steps.compute_root(state, k)
        elif choice >= 2:
            state = steps.compute_at(state, k, *places[choice - 2])
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


def _outer_loops(state: State, k: int) -> list[Iter]:
    """The outer loops of stage k that may become one: of space, not marked, with stages in the last one alone."""
    loops = []
    for it in state.stages[k].current:
        if it.kind == "reduce" or it.annotation != "none":
            break
        loops.append(it)
        if state.attached(k, it.id):
            break
    return loops


def _parallel(state: State, k: int, genes: Genes, machine: Machine) -> State:
    """The outer loops of stage k become one parallel loop: until cores have enough, or as the genes say."""
    loops = _outer_loops(state, k)
    enough = [n for n in range(1, len(loops)) if prod(it.length for it in loops[:n]) > machine.num_cores * 16]
    count = min(enough, default=len(loops))
    draw = genes.draws["parallel", k]
    if draw > 0.8 and loops:
        count = 1 + min(int((draw - 0.8) * 5 * len(loops)), len(loops) - 1)
    if prod(it.length for it in loops[:count]) == 1:
        for child in state.attached(k, loops[-1].id) if loops else []:
            state = _parallel(state, child, genes, machine)
        return state
    state, loop = fuse(state, k, [it.id for it in loops[:count]])
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
            state, loop = fuse(state, k, [it.id for it in loops[-count:]])
            state = annotate(state, k, loop, "vectorize")
    return state


def _unrolled(state: State, genes: Genes, machine: Machine) -> State:
    for k in _computed(state):
        if state.ops[k].reduce_axes:
            values = UNROLL[machine.is_gpu]
            limit = values[genes.number("unroll", k, len(values))]
            state = steps.pragma(state, k, 0, f"auto_unroll_max_step${limit}")
    return state


# --------------------------------------------------------------------------------------------------------------- GPU
def _bound(state: State, machine: Machine) -> State:
    """Loops become blocks and threads; `state` has extents, so those of copies in shared memory are for one thread."""
    tiled = [k for k in _computed(state) if state.dag.tiled[k] and not crosses_threads(state, k)]
    tiled_roots = {k if (at := state.stages[k].at) is None else at[0] for k in tiled}
    for k in _computed(state):
        stage = state.stages[k]
        if crosses_threads(state, k):
            if stage.where == "root":
                state, loop = fuse(state, k, [it.id for it in _outer_loops(state, k)])
                state = annotate(state, k, loop, "blockIdx.x")
        elif any(it.annotation == "threadIdx.x" for it in stage.current):
            continue
        elif k in tiled_roots:
            state = _bound_tiles(state, k, machine)
        elif stage.where == "root":
            state = _bound_points(state, k, machine)
        elif stage.op.name.endswith(".shared"):
            state = _bound_fetch(state, k)
    return state


def _bound_points(state: State, k: int, machine: Machine) -> State:
    """A thread for each point."""
    state, loop = fuse(state, k, [it.id for it in state.stages[k].current if it.kind == "space"])
    if state.stages[k].iters[loop].length <= machine.warp_size:
        return annotate(state, k, loop, "threadIdx.x")
    state, (block, thread) = split(state, k, loop, (machine.warp_size,))
    return annotate(annotate(state, k, block, "blockIdx.x"), k, thread, "threadIdx.x")


def _bound_tiles(state: State, k: int, machine: Machine) -> State:
    """The three outer levels of tiles are blocks, virtual threads and threads."""
    for level, annotation in enumerate(("blockIdx.x", "vthread", "threadIdx.x")):
        loops = [it.id for it in state.stages[k].current if it.name.endswith(f".{level}") and it.kind == "space"]
        state, loop = fuse(state, k, loops)
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
    state, loop = fuse(state, k, stage.loops)
    state, (loop, vector) = split(state, k, loop, (1,))
    state = annotate(state, k, vector, "vectorize")
    space = own_splits(state, target)[len(state.ops[target].reduce_axes) :]
    state = steps.follow_fused_split(state, k, state.stages[k].loops.index(loop), tuple(space), 1, 1)
    return annotate(state, k, state.stages[k].iters[-1].id, "threadIdx.x")


# ---------------------------------------------------------------------------------------------------------- evolution
def mutated(genes: Genes, machine: Machine, rng: Rng) -> Genes:
    """One decision made anew; mostly, a factor of a loop moves to another level of its tiles."""
    kind = rng.choice(1 + len(DECISIONS), p=MUTATIONS[machine.is_gpu])
    if kind:
        decision = DECISIONS[kind - 1], int(rng.integers(len(genes.sketch.stages)))
        return replace(genes, draws={**genes.draws, decision: float(rng.random())})
    movable_splits = [p for p in genes.lengths if genes.sketch.steps[p].args[2] > 1]
    if not movable_splits:
        return genes
    position = int(rng.choice(movable_splits))
    lengths = [genes.sketch.steps[position].args[2] // prod(genes.lengths[position]), *genes.lengths[position]]
    source = int(rng.choice([n for n, length in enumerate(lengths) if length > 1]))
    target = int(rng.choice([n for n in range(len(lengths)) if n != source]))
    factor = int(rng.choice([f for f in range(2, lengths[source] + 1) if lengths[source] % f == 0]))
    lengths[source], lengths[target] = lengths[source] // factor, lengths[target] * factor
    if lengths[-1] > MAX_INNERMOST:
        return genes
    return replace(genes, lengths={**genes.lengths, position: tuple(lengths[1:])})


def crossed(a: Genes, b: Genes, rng: Rng) -> Genes:
    """The decisions of each stage from one parent or the other; both are of one sketch."""
    first = {k: bool(rng.integers(2)) for k in range(len(a.sketch.stages) + 1)}
    lengths = {p: (a if first[a.sketch.steps[p].args[0]] else b).lengths[p] for p in a.lengths}
    return Genes(a.sketch, lengths, {key: (a if first[key[1]] else b).draws[key] for key in a.draws})


def children(parents: Sequence[Scored], size: int, machine: Machine, rng: Rng) -> list[Genes]:
    """Children of parents, which are drawn by their scores."""
    scores, out = np.array([score for score, _, _ in parents]), []
    weights = scores - scores.min() + 1e-3
    for n in rng.choice(len(parents), size=size, p=weights / weights.sum()):
        parent = parents[n][2]
        others = [other for _, _, other in parents if other.sketch is parent.sketch]
        crosses = rng.random() < CROSSED
        other = others[rng.integers(len(others))] if crosses else parent
        out.append(crossed(parent, other, rng) if crosses else mutated(parent, machine, rng))
    return out


def evolve(
    start: Sequence[Genes], score: Score, machine: Machine, rng: Rng, size: int = 64, generations: int = 4
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
        front = children(parents, size, machine, rng) if generation < generations and parents else []
    return sorted(seen.values(), key=lambda found: -found[0])
