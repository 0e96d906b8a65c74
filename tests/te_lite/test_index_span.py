"""Spans, values and steps of indices against a list of all their values."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

import te_lite as te
from te_lite.bounds.index_span import IndexTuples, first_step, form_axes, index_span, span_at_least, usual_steps
from te_lite.bounds.reads import Affine, Form, Quotient, Scaled, Sum, Unknown, index_form
from tests.backward_reads import index_values, random_index, written
from tests.nonempty import nonempty

FORMS: dict[str, Form] = {
    "an axis": Affine(((0, 1),), 3),
    "turned round": Affine(((1, -1),), 7),
    "strided": Affine(((0, 3),), 0),
    "a window": Affine(((0, 2), (1, 1)), -1),
    "a quotient": Quotient(Affine(((0, 1),), 0), 3, False),
    "a remainder": Quotient(Affine(((0, 4), (1, 1)), 0), 6, True),
    "one period": Quotient(Affine(((0, 1),), 12), 6, True),
    "tiles": Sum((Scaled(Quotient(Affine(((0, 1),), 0), 4, False), 2), Affine(((1, 1),), 0))),
    "a constant": Affine((), 5),
    "a quotient that falls": Quotient(Affine(((0, -1),), 7), 4, False),
    "a remainder that falls": Quotient(Affine(((0, -1),), 8), 3, True),
    "two that meet": Sum((Affine(((0, 1),), 0), Scaled(Quotient(Affine(((0, 1),), 0), 2, False), -2))),
}
EXACT = {"an axis", "turned round", "strided", "a quotient", "one period", "a constant"}


class Untrue(np.ndarray):
    """Lanes that refuse to be asked for their truth, even when there is only one."""

    def __bool__(self) -> bool:
        raise AssertionError("a lane was asked for its truth")


def value(form: Form, axes: Sequence[int]) -> int:
    match form:
        case Affine(terms=terms, const=const):
            return const + sum(c * axes[a] for a, c in terms)
        case Sum(parts=parts, const=const):
            return const + sum(value(part, axes) for part in parts)
        case Scaled(part=part, factor=factor):
            return factor * value(part, axes)
        case Quotient(part=part, divisor=divisor, mod=mod):
            return value(part, axes) % divisor if mod else value(part, axes) // divisor
        case Unknown():
            raise AssertionError("an unknown index has no value")


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("axes", [(1, 1), (2, 3), (5, 2), (6, 4)])
def test_tiles_at_the_beginning(name: str, axes: tuple[int, int]) -> None:
    """With axes that begin at 0, what is said to be sure is, and nothing is missed."""
    form = FORMS[name]
    values = {value(form, point) for point in itertools.product(*[range(n) for n in axes])}
    reach = max(values) - min(values) + 1
    count = IndexTuples(((form,),)).count(0, [float(n) for n in axes])
    assert span_at_least(form, axes) <= reach <= index_span(form, axes, 1000)
    assert len(values) <= count
    assert name not in EXACT or (len(values) == count and form_axes(form) <= {0, 1})
    assert index_span(form, axes, 2) <= 2


@pytest.mark.parametrize("name", FORMS)
def test_lanes_are_their_numbers(name: str) -> None:
    form, tiles = FORMS[name], [(1, 1), (2, 3), (6, 4)]
    lanes = [np.array(axis).view(Untrue) for axis in zip(*tiles, strict=True)]
    many = (
        index_span(form, lanes, 9),
        span_at_least(form, lanes),
        IndexTuples(((form,),)).count(0, [np.asarray(x, np.float64).view(Untrue) for x in lanes]),
    )
    for lane, axes in enumerate(tiles):
        one = (
            index_span(form, axes, 9),
            span_at_least(form, axes),
            IndexTuples(((form,),)).count(0, [float(n) for n in axes]),
        )
        assert tuple([float(np.broadcast_to(x, (3,))[lane]) for x in many]) == one


def test_steps() -> None:
    for name in FORMS:
        form = FORMS[name]
        assert usual_steps(form).keys() == form_axes(form)
        for steps in ((1, 0), (0, 1), (1, 1), (3, 2)):
            assert first_step(form, steps) == value(form, steps) - value(form, (0, 0)), name
    back = Quotient(Affine(((0, -1),), 0), 4, True)
    assert first_step(back, (1,)) == 3 and usual_steps(back) == {0: -1.0}


def test_usual_steps_are_those_of_most_places() -> None:
    for name in ("a quotient", "a quotient that falls", "one period", "a remainder that falls"):
        form = FORMS[name]
        for axis, step in nonempty(usual_steps(form).items()):
            unit = [int(a == axis) for a in (0, 1)]
            moves = [value(form, (i + unit[0], j + unit[1])) - value(form, (i, j)) for i, j in np.ndindex(24, 24)]
            assert step == max(set(moves), key=moves.count), name


def test_random_indices() -> None:
    """Wherever a tile lies, what is said to be sure is; nothing is missed of the tile that begins at 0."""
    rng = np.random.default_rng(4)
    variables = [te.Var("i"), te.Var("j")]
    columns = {v: n for n, v in enumerate(variables)}
    drawn = (random_index(rng, 2) for _ in range(300))
    forms = ((index, index_form(te.const(0) + written(index, variables), columns)) for index in drawn)
    for index, form in nonempty((index, form) for index, form in forms if not isinstance(form, Unknown)):
        axes = rng.integers(1, 6, 2).tolist()
        tiles = [index_values(index, list(np.indices(axes) + np.reshape(at, (2, 1, 1)))) for at in np.ndindex(6, 6)]
        assert span_at_least(form, axes) <= min(int(np.ptp(tile)) + 1 for tile in tiles), index
        assert IndexTuples(((form,),)).count(0, [float(n) for n in axes]) >= len(np.unique(tiles[0])), index
        start, *others = [int(index_values(index, np.array(at))) for at in ((0, 0), (1, 0), (0, 1), (2, 1))]
        steps = [first_step(form, at) for at in ((1, 0), (0, 1), (2, 1))]
        assert steps == [there - start for there in others], index


def test_an_index_that_nothing_is_known_of() -> None:
    assert index_span(Unknown(), (4,), 7) == 7 and span_at_least(Unknown(), (4,)) == 1
    assert IndexTuples(((Unknown(),),)).count(0, [4.0]) == np.inf
    assert first_step(Unknown(), (1,)) == 1 and usual_steps(Unknown()) == {}


def test_several_reads_are_counted_together() -> None:
    reads = IndexTuples(((Affine(((0, 1),), 0),), (Affine(((0, 1),), 2),), (Affine((), 20),)))
    assert reads.count(0, [5.0]) == 11 and reads.axes == (frozenset({0}),) and reads.plain == (None,)
