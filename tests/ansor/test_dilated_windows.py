"""Windows whose terms lie far apart: what is between them is not read, so it costs nothing by the estimate.

An untuned convolution of a line with a dilation of 4,096, as in detectors of sleep spindles, took 50 times as long as
one with 4: every program that has more than one term in its tile seemed to read the gaps.
"""

from __future__ import annotations

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cost_model.prior import AnalyticalModel
from ansor.policy.default_schedule import default_state
from te_lite import topi
from te_lite.bounds.footprint import BufferAccess
from te_lite.bounds.index_span import index_span, values_at_most
from te_lite.bounds.reads import Affine, Sum


def touched(form: Affine, axes: tuple[int, ...]) -> int:
    """How many different values the index has."""
    values = {form.const}
    for axis, c in form.terms:
        values = {v + c * n for v in values for n in range(axes[axis])}
    return len(values)


@pytest.mark.parametrize("seed", range(40))
def test_there_are_at_least_those_that_are_met_and_no_gaps_but_of_the_smallest_step(seed: int) -> None:
    rng = np.random.default_rng(seed)
    axes = tuple(int(n) for n in rng.integers(1, 6, 3))
    form = Affine(tuple((a, int(rng.choice([-64, -3, 1, 2, 5, 100]))) for a in range(int(rng.integers(1, 4)))), 7)
    found, met = values_at_most(form, axes), touched(form, axes)
    assert met <= min(found, index_span(form, axes, 1 << 30))
    apart = Affine(tuple((a, (-1) ** a * 3 * 100**a) for a, _ in form.terms), 7)
    assert values_at_most(apart, axes) == 3 * touched(apart, axes)
    lanes = values_at_most(form, tuple(np.array([n, n + 1]) for n in axes))
    np.testing.assert_array_equal(lanes, [found, values_at_most(form, tuple(n + 1 for n in axes))])
    assert values_at_most(Sum((form,)), axes) > index_span(Sum((form,)), axes, 1 << 30)


def test_an_access_reaches_its_terms_but_has_room_for_what_is_between() -> None:
    window = BufferAccess(0, (Affine(((0, 1), (1, 4096)), 0),), (16384,), "", 4)
    assert window.reach((8, 3)).elements == 24
    assert window.elements((8, 3)) == 8 + 2 * 4096
    close = BufferAccess(0, (Affine(((0, 2), (1, 1)), 0),), (16384,), "", 4)
    assert close.reach((8, 3)).elements == close.elements((8, 3)) == 17


@pytest.mark.parametrize(("filters", "length"), [(64, 7500), (16, 700)])
def test_the_default_program_is_liked_as_well_as_that_of_a_close_window(filters: int, length: int) -> None:
    scores = []
    for dilation in (4, 4096):
        data = te.placeholder((1, 32, length + 2 * dilation), "float32", "data")
        weight = te.placeholder((filters, 32, 3), "float32", "weight")
        out = topi.nn.relu(topi.nn.conv1d(data, weight, 1, 0, dilation))
        task = ansor.SearchTask(compute_dag=te.ComputeDAG([data, weight, out]), target="c")
        state = default_state(task)
        assert state is not None
        scores.append(float(AnalyticalModel().predict(task, [state])[0]))
    assert abs(scores[0] - scores[1]) < np.log(2)
