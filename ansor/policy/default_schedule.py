"""A sound program for a kernel that nobody has tuned.

For a kernel with reductions, some programs are drawn from the sketches that a search has, with a fixed seed, and
ranked by the models that need no measurement; the best one that lowers, and that the target does not refuse, is taken.
Other kernels, and those for which they think no drawn program better, get plain nests: parallel rows with vector
columns on a CPU, or the loops as they are written where that is little work, one thread a vector or an element on a
GPU.  Where an extension has nests for what a GPU reads about once (the part `streaming`), nothing is drawn.  Equal
kernels get equal programs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Any

import numpy as np

from te_lite.bounds.bounds import infer_bounds
from te_lite.computation.tensor import ComputeOp
from te_lite.errors import LowerError
from te_lite.extensions import offers, part
from te_lite.later import when_called
from te_lite.lowering.lower import lower
from te_lite.schedule.state import State
from te_lite.schedule.step import Step

from ..analytical.loop_nests import Nest, loop_nests
from ..core.host.process import keep_freed_memory
from ..core.target.registry import search_parts
from ..core.tasks.task import SearchTask
from ..core.values.options import SketchOptions
from ..cost_model.prior import AnalyticalModel, ShippedModel, has_shipped_model, shipped_model_of
from ..evolve.evolution import EvolveOptions
from ..sketch.generate import extra_sketches, generate_sketches, has_own_rules
from ..sketch.plain import plain_state, untuned_state
from ..space.programs import Programs
from ..space.spaces import Group
from ..space.states import concrete
from .proposals import Proposals
from .scoring import WEIGHT_OF_ESTIMATE, Scorer, scores_of, weighed

# What a GPU alone has.
has_wide_tile: Callable[[Nest], Any] = when_called("ansor.analytical.gpu", "has_wide_tile")

DRAWN = 128
"""Programs of each sketch among which is chosen."""
LOOKED_AT = 64
"""Those of them that the analytical model likes best, which the model of the package looks at, too."""
TRIED = 12
LITTLE = 1e-6
"""Seconds of a plain nest that are worth no search: the threads of a loop take longer to start."""
SEED = 0


def default_state(task: SearchTask) -> State | None:
    """The first program of `default_states` that lowers; None where none does, and where it is the untuned program.

    None, too, for a target whose search has parts of its own: its machine model knows the nests of these only.  What a
    machine has no room for is not drawn, as in a search; what its backend refuses still is seen when it is built.
    """
    states = () if search_parts(task.target.kind.name) else default_states(task)
    found = next((state for state in states if _lowers(task, state)), None)
    return None if found is None or found.steps == untuned_state(task).steps else found


def _lowers(task: SearchTask, state: State) -> bool:
    try:
        lower(state, task.compute_dag.tensors)
    except LowerError:
        return False
    return True


def default_states(task: SearchTask, drawn: Iterable[State] | None = None) -> Iterator[State]:
    """Programs of `task`, to be tried one after the other; the last one is a nest that nobody drew.

    `drawn` are those of `drawn_of`, where they are known already.
    """
    if draws(task):
        yield from drawn_of(task) if drawn is None else drawn
    yield from _nests(task)


def drawn_of(task: SearchTask) -> Iterator[State]:
    """The drawn programs of a task with reductions that the models think better than its plain nest.

    Programs that an extension knows come first; nothing else is drawn where one of them is to be taken alone, or as
    long as the target refuses none of them.
    """
    known = [x for x in offers("programs").values() if x.offer.applies(task.compute_dag, task.target.is_gpu)]
    found = [(taken.offer.alone, taken(task, lambda: _sketches(task))) for taken in known]
    alone = [state for is_alone, states in found if is_alone for state in states]
    others = [states for is_alone, states in found if not is_alone]
    return iter(alone) if alone else chain(*others, drawn_states(task, better_than=_nests(task)[0]))


def _nests(task: SearchTask) -> list[State]:
    """The plain nest, on a CPU also the loops as they are written, best first by the analytical model.

    Little work is done before the threads of a parallel loop have started.
    """
    if task.target.is_gpu:
        made = _streaming(task)
        own = [made()] if made else [] if reduces(task) else [plain_state(task, vectors=True)]
        return [*own, plain_state(task)]
    nests = [plain_state(task), untuned_state(task)]
    return [nests[k] for k in np.argsort(-AnalyticalModel().predict(task, nests), kind="stable")]


def _streaming(task: SearchTask) -> Callable[[], State] | None:
    """What makes the nests that an extension has for a task of a GPU; None where none has any."""
    asked = part("streaming") if task.target.is_gpu else None
    found: Callable[[], State] | None = asked(task) if asked else None
    return found


def draws(task: SearchTask) -> bool:
    """Whether programs are drawn for a task."""
    return reduces(task) and _streaming(task) is None


def breeds(task: SearchTask) -> bool:
    """Whether those that are drawn are bred: on a GPU for which the package has no model."""
    return task.target.is_gpu and not has_shipped_model(task)


def reduces(task: SearchTask) -> bool:
    """Whether a task has reductions, and no scan, in whose programs nothing is decided."""
    ops = [op for op in task.compute_dag.ops if isinstance(op, ComputeOp)]
    return any(op.reduce_axis for op in ops) and not any(op.scans for op in ops)


Drawn = tuple[float, Group, int]
"""A score, and the row of a group that it is of."""


def drawn_states(task: SearchTask, better_than: State | None = None) -> Iterator[State]:
    """Programs drawn from the sketches of a task, best first by the models that need no measurement; none twice.

    They are few, and those models think more of all of them than of `better_than`; where that takes little, on a CPU,
    there are none.  Where the analytical model is the only one, on a GPU, programs are bred for it: a task that is
    large has many that are several times as slow.
    """
    shipped = shipped_model_of(task)
    few = part("few_threads") if breeds(task) else None
    task = few(task) if few else task
    least = -np.inf if better_than is None else _opinion(task, shipped, better_than)
    if not task.target.is_gpu and least > -np.log(LITTLE):
        return
    keep_freed_memory()
    if not (sketches := _sketches(task)):
        return
    drawer = Proposals(task, sketches, SketchOptions(), np.random.default_rng(SEED), EvolveOptions(out=2048))
    estimate = Scorer(task, AnalyticalModel())
    drawer.most_variants = len(drawer.sketches)
    found = _bred(drawer, estimate) if breeds(task) else _drawn(drawer, estimate)
    # without their unrolling some rows are the same
    better = {(id(g.variant), g.rows[k].tobytes()): (g, k) for v, g, k in _ranked(task, shipped, found) if v > least}
    yield from islice(_different(_program(task, group, k) for group, k in better.values()), TRIED)


def _sketches(task: SearchTask) -> list[State]:
    """Those of a search with the usual parameters."""
    dag, target, hardware = task.compute_dag, task.target, task.hardware_params
    extra = [] if has_own_rules(target) else extra_sketches(dag, target, hardware, stored_as_read=task.packs)
    return [*generate_sketches(dag, target, hardware), *extra]


def _program(task: SearchTask, group: Group, k: int) -> State:
    """The program of a row; on a GPU with a little unrolling where a thread has a wide tile of a product.

    Without any, all steps of such a tile are written out, which is slower (docs/results/gpu.md).
    """
    state = concrete(group.variant, group.rows[k], task.target, task.hardware_params)
    if not (task.target.is_gpu and _has_wide_tile(state)):
        return state
    little = with_unrolling(Group(group.variant, group.rows[k][None]), 1)
    return concrete(group.variant, little.rows[0], task.target, task.hardware_params)


def _has_wide_tile(state: State) -> bool:
    return any(bool(has_wide_tile(nest)) for nest in loop_nests(Programs(infer_bounds(state))))


def _different(programs: Iterable[State]) -> Iterator[State]:
    """Each program once: rows that differ in unrolling alone have become the same."""
    known: set[tuple[Step, ...]] = set()
    for state in programs:
        if state.steps not in known:
            known.add(state.steps)
            yield state


def _drawn(drawer: Proposals, estimate: Scorer) -> list[Drawn]:
    """The best of some programs of each sketch."""
    groups = [_without_unrolling(g) for g in drawer.population(DRAWN * len(drawer.sketches))]
    drawn = [(value, g, k) for g in groups for k, value in enumerate(estimate(g).tolist()) if value > -np.inf]
    return sorted(drawn, key=lambda entry: -entry[0])[:LOOKED_AT]


def _bred(drawer: Proposals, estimate: Scorer) -> list[Drawn]:
    """The best programs that a few generations of a population lead to."""
    drawer.evolution = replace(drawer.evolution, max_variants=len(drawer.sketches))
    found = drawer.evolved(LOOKED_AT, lambda group: estimate(_without_unrolling(group)), [])
    groups = [_without_unrolling(Group(variant, row[None, :])) for _, (variant, row) in found]
    values = scores_of(estimate, [(group.variant, group.rows[0]) for group in groups])
    return [(value, group, 0) for value, group in zip(values.tolist(), groups, strict=True)]


def _opinion(task: SearchTask, shipped: ShippedModel | None, state: State) -> float:
    """The score of a program, as `_ranked` scores rows."""
    estimate = AnalyticalModel().predict(task, [state])
    if shipped is None:
        return float(estimate[0])
    return float(weighed(shipped.predict(task, [state]), estimate, WEIGHT_OF_ESTIMATE)[0])


def _ranked(task: SearchTask, shipped: ShippedModel | None, drawn: Sequence[Drawn]) -> list[Drawn]:
    """Rows of groups with the scores of the analytical model, best first by the models that need no measurement."""
    entries: dict[int, list[Drawn]] = {}
    for entry in drawn:
        entries.setdefault(id(entry[1]), []).append(entry)
    scored = [entry for found in entries.values() for entry in _looked_at(task, shipped, found)]
    return sorted(scored, key=lambda entry: -entry[0])


def _looked_at(task: SearchTask, shipped: ShippedModel | None, drawn: Sequence[Drawn]) -> list[Drawn]:
    """Rows of one group, their estimates weighed with the scores of the model of the package where there is one."""
    if shipped is None:
        return list(drawn)
    group, ks = drawn[0][1], [k for _, _, k in drawn]
    scores = Scorer(task, shipped)(Group(group.variant, group.rows[ks]))
    values = weighed(scores, np.array([value for value, _, _ in drawn]), WEIGHT_OF_ESTIMATE)
    return [(value, group, k) for value, k in zip(values.tolist(), ks, strict=True)]


def _without_unrolling(group: Group) -> Group:
    """The same programs with the smallest unrolling: it is hard to foresee, and costs compile time."""
    return with_unrolling(group, 0)


def with_unrolling(group: Group, number: int) -> Group:
    """The same programs with an unrolling of those that they may have, the smallest one first."""
    rows = group.rows.copy()
    for choice in group.variant.space.choices:
        if choice.kind == "unroll":
            rows[:, choice.column] = choice.values[min(number, len(choice.values) - 1)]
    return Group(group.variant, rows)
