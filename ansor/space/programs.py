"""Programs of one loop structure, with all extents: what features, limits and analytical models read.

One program has ints, n programs have int64 arrays with one lane each; whoever reads this treats both with the same
code (`te_lite.expr.lanes`).  `programs` makes them from rows without applying a single step: the structure of a variant
is made once with undecided lengths, then every split gets its lengths as lanes and bounds are inferred.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import groupby
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.expr.lanes import product
from te_lite.schedule.loop_steps import FollowFusedSplit, FollowSplit, Split
from te_lite.schedule.state import SplitRel, Stage, State

from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from .decisions.decision import Decision, Numbers, Tile
from .decisions.draw import Matrix, require_matrix
from .decisions.loops import loops_of_programs, split_positions
from .spaces import Space, Variant, placed

Shape = tuple[tuple[str, tuple[tuple[int, int], ...]], ...]
"""For each kind of decision that shapes steps its numbers: pairs of a stage and a number, sorted."""


class Hole(NamedTuple):
    """The decision that fills in a step, and the columns of its numbers."""

    decision: Decision[Any]
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Structure:
    """A state whose numbers are undecided, and the hole at each position of a step that has some."""

    state: State
    holes: Mapping[int, Hole]


@lru_cache(maxsize=512)
def structure(variant: Variant, hardware: HardwareParams, shape: Shape = ()) -> Structure:
    """All steps of the programs of a variant, their numbers undecided but those of `shape`."""
    space, shaped = variant.space, {name: dict(numbers) for name, numbers in shape}
    numbers = {d.name: shaped.get(d.name, {}) if d.shapes_steps else _undecided(space, d) for d in space.decisions}
    state, holes = placed(variant), _holes_of_sketch(space)
    for _, group in groupby(sorted(space.decisions, key=attrgetter("turn")), key=attrgetter("turn")):
        decisions = list(group)
        stages = loops_of_programs(state)
        for k in reversed(stages) if decisions[0].last_first else stages:
            for decision in decisions:
                made = decision.apply(state, k, numbers[decision.name], hardware)
                holes.update(_holes(space, decision, k, made, len(state.steps)))
                state = made
    return Structure(state, holes)


def _undecided(space: Space, decision: Decision[Any]) -> Numbers:
    return {part.stage: None for part in space.of(decision.name)}


def _holes_of_sketch(space: Space) -> dict[int, Hole]:
    lengths = next((d for d in space.decisions if d.name == Tile.kind), None)
    return {} if lengths is None else {step: Hole(lengths, columns) for step, columns in space.splits.items()}


def _holes(space: Space, decision: Decision[Any], k: int, state: State, first: int) -> dict[int, Hole]:
    """Those among the steps from position `first` on, which the decision made for stage `k`."""
    column = {part.stage: part.columns.start for part in space.of(decision.name)}
    steps = range(first, len(state.steps)) if k in column else ()
    return {p: Hole(decision, (column[k],)) for p in steps if decision.read(state.steps[p]) is not None}


@dataclass(frozen=True)
class Programs:
    """`bounds.state` has the loops and their extents.  What differs between lanes but is no extent stands beside it.

    `numbers[kind][k]` is the number that stage k has by a kind of decision (ints or lanes); a stage that is missing
    has what its steps say.  `n` is the number of lanes (1 for a single program).  `decisions` are the kinds, for rows.
    """

    bounds: Bounds
    n: int = 1
    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    decisions: tuple[Decision[Any], ...] = ()

    def of(self, kind: str) -> Numbers:
        """The numbers of one kind of decision, by stage; empty for one that these programs do not have."""
        return self.numbers.get(kind, {})

    @property
    def parallel(self) -> Numbers:
        """How many of the outermost loops of a stage run in parallel."""
        return self.of("parallel")

    @property
    def vectorize(self) -> Numbers:
        """How many of the innermost loops of a stage are vector lanes."""
        return self.of("vectorize")

    @property
    def unroll(self) -> Numbers:
        """The auto_unroll_max_step of a stage."""
        return self.of("unroll")


@dataclass(frozen=True)
class Origin:
    """Everything that decides a population: rows of a variant as columns, int64 [n] each, and where they run."""

    variant: Variant
    columns: list[Any]
    target: Target
    hardware: HardwareParams

    def programs(self, n: Any) -> Programs:
        """The programs of `n` rows; columns may also be ints (of one row) or symbols of a trace, and `n` one too."""
        space, columns = self.variant.space, self.columns
        bounds = infer_bounds(_filled(_recipe(self.variant, self.hardware), columns))
        loops = set(loops_of_programs(bounds.state))
        numbers: dict[str, Numbers] = {}
        for decision in space.decisions:
            given = {c.stage: columns[c.column] for c in space.choices if c.kind == decision.name and c.stage in loops}
            numbers[decision.name] = decision.lanes(given, bounds, numbers)
        return Programs(bounds, n, numbers, space.decisions)


class RowPrograms(Programs):
    """The programs of rows.  Their loops are worked out when they are first asked for."""

    origin: Origin

    def __init__(self, origin: Origin, n: int) -> None:
        object.__setattr__(self, "origin", origin)
        object.__setattr__(self, "n", n)

    @cached_property
    def _made(self) -> Programs:
        return self.origin.programs(self.n)

    @property
    def bounds(self) -> Bounds:
        return self._made.bounds

    @property
    def numbers(self) -> Mapping[str, Numbers]:
        return self._made.numbers

    @property
    def decisions(self) -> tuple[Decision[Any], ...]:
        return self.origin.variant.space.decisions


def programs(variant: Variant, rows: Matrix, target: Target | str, hardware: HardwareParams) -> RowPrograms:
    """The programs of `rows` (int64 [n, width]), one lane each.

    Numbers of parallel and vector loops that do not fit a program mean what `concrete` makes of them: parallel loops
    inside others count only where the others have extent 1, and vector loops end where parallel ones begin.
    Raises TaskError for rows of another shape or dtype.
    """
    require_matrix("programs: the rows", rows, (len(rows), variant.space.width))
    target = Target.of(target)
    columns = list(np.array(rows.T, np.int64, order="C"))
    return RowPrograms(Origin(variant, columns, target, hardware.completed(target)), len(rows))


def program(variant: Variant, row: np.ndarray, target: Target | str, hardware: HardwareParams) -> Programs:
    """The program of one row (int64 [width]), with ints."""
    target = Target.of(target)
    return Origin(variant, row.tolist(), target, hardware.completed(target)).programs(1)


# ------------------------------------------------------------------------------------------------ lengths as lanes


@dataclass(frozen=True, slots=True)
class Term:
    """A length: `factor` times the product of some columns."""

    factor: int
    columns: tuple[int, ...]

    def value(self, columns: list[Any]) -> Any:
        return product([self.factor, *[columns[c] for c in self.columns]])


@dataclass(frozen=True)
class Recipe:
    """The structure of a variant, and for each stage with undecided lengths the terms of each of its relations.

    A relation without undecided lengths has no terms (None).
    """

    state: State
    lengths: tuple[tuple[int, tuple[tuple[Term, ...] | None, ...]], ...]


@lru_cache(maxsize=1024)
def _recipe(variant: Variant, hardware: HardwareParams) -> Recipe:
    found = structure(variant, hardware)
    state, terms = found.state, _terms(found.state, found.holes)
    lengths = []
    for k, stage in enumerate(state.stages):
        positions = iter(split_positions(state, k))
        rows = [terms[next(positions)] if isinstance(rel, SplitRel) else None for rel in stage.relations]
        if any(row is not None for row in rows):
            lengths.append((k, tuple(rows)))
    return Recipe(state, tuple(lengths))


def _terms(state: State, holes: Mapping[int, Hole]) -> dict[int, tuple[Term, ...]]:
    """The lengths that every split, and every split that follows others, gives its loops."""
    out: dict[int, tuple[Term, ...]] = {}
    for position, step in enumerate(state.steps):
        match step:
            case Split() if position in holes:
                out[position] = tuple([Term(1, (c,)) for c in holes[position].columns])
            case Split(lengths=lengths):
                out[position] = tuple([Term(int(x), ()) for x in lengths])  # type: ignore[arg-type]
            case FollowSplit(source=source, n_split=n):
                out[position] = (*out[source][: n - 1], _times(out[source][n - 1 :]))
            case FollowFusedSplit(sources=sources, level=level):
                out[position] = (_times([out[s][level] for s in sources]),)
    return out


def _times(terms: Any) -> Term:
    return Term(int(product([t.factor for t in terms])), tuple([c for t in terms for c in t.columns]))


def _filled(recipe: Recipe, columns: list[Any]) -> State:
    """The structure with its lengths; extents are still to be inferred."""
    stages = list(recipe.state.stages)
    for k, rows in recipe.lengths:
        stages[k] = _with_lengths(stages[k], rows, columns)
    return replace(recipe.state, stages=tuple(stages))


def _with_lengths(stage: Stage, rows: tuple[tuple[Term, ...] | None, ...], columns: list[Any]) -> Stage:
    relations = []
    for rel, terms in zip(stage.relations, rows, strict=True):
        if isinstance(rel, SplitRel) and terms is not None:
            lengths = tuple([t.value(columns) for t in terms])
            rel = SplitRel(rel.parent, rel.children, lengths, rel.inner_to_outer)
        relations.append(rel)
    return replace(stage, relations=tuple(relations))
