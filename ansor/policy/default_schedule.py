"""A sound program for a kernel that nobody has tuned.

For a kernel with reductions, a few dozen programs are drawn from Ansor's sketches with a fixed seed and ranked by the
analytical model; the best one that lowers, and that the target does not refuse, is taken.  Other kernels, and those for
which no sketch gives a program, get plain nests: parallel rows with vector columns on a CPU, one thread a vector or an
element on a GPU.  Equal kernels get equal programs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from te_lite.errors import LowerError
from te_lite.lower import lower
from te_lite.state import State
from te_lite.tensor import ComputeOp

from ..core.options import SketchOptions
from ..core.task import SearchTask
from ..cost_model.analytical_model import AnalyticalModel
from ..evolve.evolution import EvolveOptions
from ..sketch import generate_sketches
from ..sketch.plain import plain_state, untuned_state
from ..space.choices import Group
from ..space.states import concrete
from .proposals import Proposals
from .scoring import Scorer

DRAWN = 512
TRIED = 12
SEED = 0
VARIANTS = 4


def default_state(task: SearchTask) -> State | None:
    """The first program of `default_states` that lowers; None where none does, and where it is the untuned program.

    What a machine has no room for is not drawn, as in a search; what its backend refuses still is seen when it is
    built.
    """
    found = next((state for state in default_states(task) if _lowers(task, state)), None)
    return None if found is None or found.steps == untuned_state(task).steps else found


def _lowers(task: SearchTask, state: State) -> bool:
    try:
        lower(state, task.compute_dag.tensors)
    except LowerError:
        return False
    return True


def default_states(task: SearchTask) -> Iterator[State]:
    """Programs of `task`, to be tried one after the other; the last one is the plain nest."""
    if _reduces(task):
        yield from drawn_states(task)
    elif task.target.is_gpu:
        yield plain_state(task, vectors=True)
    yield plain_state(task)


def _reduces(task: SearchTask) -> bool:
    return any(isinstance(op, ComputeOp) and op.reduce_axis for op in task.compute_dag.ops)


def drawn_states(task: SearchTask) -> Iterator[State]:
    """Programs drawn from the sketches of a task, best first by the analytical model; few, and none twice."""
    sketches = generate_sketches(task.compute_dag, task.target, task.hardware_params)
    if not sketches:
        return
    unused = EvolveOptions(size=DRAWN, iterations=0, mutation_prob=0.0, out=DRAWN)
    drawer = Proposals(task, sketches, SketchOptions(), np.random.default_rng(SEED), unused)
    drawer.most_variants = VARIANTS
    groups = [_without_unrolling(g) for g in drawer.population(DRAWN)]
    score = Scorer(task, AnalyticalModel())
    ranked = [(value, g, k) for g in groups for k, value in enumerate(score(g).tolist()) if value > -np.inf]
    for _, group, k in sorted(ranked, key=lambda entry: -entry[0])[:TRIED]:
        yield concrete(group.variant, group.rows[k], task.target, task.hardware_params)


def _without_unrolling(group: Group) -> Group:
    """The same programs with the smallest unrolling: it is hard to foresee, and costs compile time."""
    rows = group.rows.copy()
    for choice in group.variant.space.choices:
        if choice.kind == "unroll":
            rows[:, choice.column] = choice.values[0]
    return Group(group.variant, rows)
