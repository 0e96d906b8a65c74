"""Forests that are walked by one kernel, many trees side by side: who takes it, what it means, how much it walks."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
from relay_lite.frontend import from_onnx
from relay_lite.frontend.onnx_ml import timetable
from relay_lite.frontend.onnx_ml.walk import Forest
from relay_lite.ir.visit import is_op, post_order
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_graph, of_onnx
from tests.reports.test_models_of_tables import (
    COLUMNS,
    ML,
    Tree,
    attributes,
    drawn,
    ensemble,
    every_target,
    leaf,
    rows,
    some_targets,
)

pytestmark = [pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++"),
              pytest.mark.one_in(3)]  # fmt: skip
ORDERED = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT"]


def regressor(trees: list[Tree], x: Array, targets: int, aggregate: str, rng: np.random.Generator) -> Any:
    attrs = attributes(trees, "target", rng)
    return node_model("TreeEnsembleRegressor", [x], domain=(ML, 3), n_targets=targets, aggregate_function=aggregate,
                      **attrs)  # fmt: skip


def by_hand(trees: list[Tree], x: Array, targets: int, aggregate: str) -> Array:
    """Every row down every tree."""
    join = {"SUM": sum, "AVERAGE": lambda s: sum(s) / len(trees), "MIN": min, "MAX": max}[aggregate]
    found = [[leaf(tree, row) for tree in trees] for row in x]
    return np.array([[join([v for said in row for k, v in said if k == t]) for t in range(targets)] for row in found])


def one_kernel(model: Any) -> bool:
    return any(is_op(e, "forest") for e in post_order(from_onnx(model)[0]["main"].body))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(12))
def test_many_trees(seed: int) -> None:
    """All comparisons of order, in one tree too, NaN either way, limits that rows have, and targets of no leaf."""
    rng, aggregate = np.random.default_rng(seed), ["SUM", "AVERAGE", "MIN", "MAX"][seed % 4]
    targets = int(rng.integers(1, 5))
    say = every_target(targets) if aggregate in ("MIN", "MAX") or seed % 3 else some_targets(targets)
    modes = ORDERED if seed % 2 else [ORDERED[seed // 2 % 4]]
    trees = [drawn(rng, int(rng.integers(0, 8)), modes, say) for _ in range(int(rng.integers(8, 30)))]
    x = rows(rng, ["float32", "float64"][seed // 2 % 2], [1, 16, 33][seed % 3])
    model = regressor(trees, x, targets, aggregate, rng)
    assert one_kernel(model)
    want = by_hand(trees, x, targets, aggregate)
    for who, (got,) in nonempty(of_onnx(model, [x])):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=who)


@pytest.mark.parametrize("mode", ORDERED)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_limit_is_exact(mode: str, dtype: str) -> None:
    """Of the numbers next to a limit each goes where its comparison says: zeros of both signs and the largest, too."""
    ends = np.finfo(dtype)
    limits = [0.0, -0.0, 1.0, float(ends.max), float(ends.min), float(ends.smallest_subnormal), np.inf]
    with np.errstate(over="ignore"):
        near = [np.nextafter(np.asarray(v, dtype), np.asarray(to, dtype)) for v in limits for to in (-np.inf, np.inf)]
    values = np.array([*limits, *near, -np.inf, np.nan], dtype)
    x = np.repeat(values[:, None], COLUMNS, 1)
    trees = [Tree([], 1, mode, v, (), k % 2, (Tree([(0, 0.0)]), Tree([(0, 2.0**k)])))
             for k, v in enumerate(limits * 2)]  # fmt: skip
    if dtype == "float64":  # the old operators have limits of float32
        attrs = ensemble(trees, dtype)
        model = node_model("TreeEnsemble", [x], domain=(ML, 5), n_targets=1, aggregate_function=1, **attrs)
    else:
        model = regressor(trees, x, 1, "SUM", np.random.default_rng(0))
    assert one_kernel(model)
    for who, (got,) in nonempty(of_onnx(model, [x])):
        np.testing.assert_array_equal(got, by_hand(trees, x, 1, "SUM"), err_msg=who)


def split(mode: str = "BRANCH_LEQ", value: float = 0.0, missing: int = 1) -> Tree:
    return Tree([], 1, mode, value, (), missing, (Tree([(0, -1.0)]), Tree([(0, 3.0)])))


ODD = {
    "few trees": [split()] * 7,
    "a comparison by ==": [split()] * 8 + [split("BRANCH_EQ")],
    "nothing is less than -inf": [split()] * 8 + [split("BRANCH_LT", -np.inf)],
    "nothing is less than NaN": [split()] * 8 + [split("BRANCH_LEQ", np.nan)],
}


@pytest.mark.parametrize("name", ODD)
def test_other_forests_are_walked_step_by_step(name: str) -> None:
    rng = np.random.default_rng(0)
    x = rows(rng, "float32")
    model = regressor(ODD[name], x, 1, "SUM", rng)
    assert not one_kernel(model)
    for who, (got,) in nonempty(of_onnx(model, [x])):
        np.testing.assert_array_equal(got, by_hand(ODD[name], x, 1, "SUM"), err_msg=who)


@pytest.mark.parametrize("join", ["sum", "min", "max"])
def test_the_operator_everywhere(join: str) -> None:
    """In any table, also one whose numbers are no powers of two and whose timetable starts walks before they end."""
    rng = np.random.default_rng(3)
    count, width, parts, steps, side = 11, 3, 2, 6, 3
    x = rng.integers(-2, 3, (4, width)).astype("float32")
    x[1, 1] = np.nan
    table = [
        rng.integers(0, 2**32, count).astype("uint32"), rng.integers(-2, 3, count).astype("float32"),
        rng.integers(-9, 9, (count, 2)).astype("float32"), rng.random((parts, steps)) < 0.4,
        rng.integers(0, count, (parts, steps, side)).astype("uint32"),
    ]  # fmt: skip
    words, limits, said, starts, roots = table
    two = {"sum": np.add, "min": np.minimum, "max": np.maximum}[join]
    want = np.empty((4, 2))
    for r, row in enumerate(x):
        every = []
        for part in range(parts):
            at = [0] * side
            for t in range(steps):
                if t == 0 or starts[part, t]:
                    every += [said[n] for n in at]
                at = [int(n) for n in roots[part, t]] if starts[part, t] else at
                at = [(int(words[n]) // width + int(row[words[n] % width] <= limits[n])) % count for n in at]
        want[r] = two.reduce(every)
    given = [starts, roots, words, x, limits, said]  # in the order in which a lowered group has them
    first, root, word, row_, limit, value = [relay.var(f"v{k}", a.shape, str(a.dtype)) for k, a in enumerate(given)]
    made = relay.forest(row_, word, limit, value, first, root, join)
    function = relay.Function([first, root, word, row_, limit, value], made)
    for who, (got,) in nonempty(of_graph(function, given)):
        np.testing.assert_array_equal(got, want, err_msg=who)


def test_a_deep_tree_costs_its_own_steps_alone() -> None:
    """A forest of 1,000 shallow trees and a deep one: the sum of the depths of groups is walked, and parts are even."""
    depths = [3] * 1000 + [500]
    starts, trees = timetable._timetable(np.array(depths))
    assert sorted(trees[trees >= 0].tolist()) == list(range(1001))
    steps = np.array([np.flatnonzero(row)[-1] for row in starts])
    assert steps.sum() <= 500 + 3 * (1000 / timetable.SIDE + 1)
    starts, _ = timetable._timetable(np.arange(1024) % 20)
    ends = np.array([np.flatnonzero(row)[-1] for row in starts])
    assert ends.max() < 1.2 * ends.mean()


def test_nodes_of_a_tree_lie_together() -> None:
    """Children side by side, a tree whole, and its nodes level by level."""
    rng = np.random.default_rng(5)
    children, roots = list[list[int]](), []
    for _ in range(9):
        roots.append(len(children))
        children.append([len(children)] * 2)
        for at in range(roots[-1], roots[-1] + 7):
            if at < len(children) and rng.random() < 0.8:
                children[at] = [len(children), len(children) + 1]
                children += [[n, n] for n in children[at]]
    count = len(children)
    forest = Forest(np.zeros(count, int), np.zeros(count), np.zeros(count, int), np.array(children),
                    np.zeros(count, bool), np.array(roots))  # fmt: skip
    fronts = timetable._fronts(forest)
    order, firsts, places = timetable._layout(forest, fronts, np.arange(9)[::-1])
    assert sorted(order.tolist()) == list(range(count))
    assert places.tolist() == sorted(places.tolist(), reverse=True)
    for at in nonempty(range(1, count + 1)):
        old, first = order[at - 1], firsts[at]
        own = [first, first + 1] if not forest.leaves[old] else [at, at]
        assert [order[n - 1] for n in own] == forest.children[old].tolist()
        assert first >= at
