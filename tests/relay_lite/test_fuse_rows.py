"""Rows that exporters spell out are one group on CUDA, whatever the spelling, and nothing changes its meaning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

import relay_lite as relay
from ansor_ext.rows.row_stages import row_program
from relay_lite.compiler.optimize import extract_tasks, group_uses, optimize
from relay_lite.ir.nodes import Call, Expr, Function, Tuple
from relay_lite.ir.reference import run
from relay_lite.ir.visit import free_vars, post_order
from relay_lite.transform import FuseOps, PassContext, RowShapes, SimplifyInference
from tests.relay_lite.test_fuse_meaning import check_group

Rng = np.random.Generator
Array = np.ndarray


@dataclass(frozen=True)
class Case:
    """A network of one input, and what it gives in float64."""

    body: Expr
    x: Array
    want: Array


def number(value: float) -> Expr:
    return relay.const(np.float32(value))


def constant(array: Array) -> Expr:
    return relay.const(array.astype("float32"))


def standard(rng: Rng, x: Expr, axes: tuple[int, ...]) -> Expr:
    """Mean 0 and variance 1 over the axes, in one of the ways that exporters write it."""
    centred = relay.subtract(x, relay.mean(x, axis=axes, keepdims=True))
    square = relay.multiply(centred, centred) if rng.random() < 0.5 else relay.power(centred, number(2.0))
    inside = relay.add(relay.mean(square, axis=axes, keepdims=True), number(1e-5))
    match rng.integers(3):
        case 0:
            return relay.divide(centred, relay.sqrt(inside))
        case 1:
            return relay.multiply(centred, relay.rsqrt(inside))
    return relay.multiply(centred, relay.divide(number(1.0), relay.sqrt(inside)))


def standard_in_numpy(x: Array, axes: tuple[int, ...]) -> Array:
    centred = x - x.mean(axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axes, keepdims=True) + 1e-5))


def layer_norm(rng: Rng) -> Case:
    shape = tuple(map(int, rng.integers(2, 8, rng.integers(2, 4))))
    x, gamma, beta = rng.standard_normal(shape), rng.standard_normal(shape[-1]), rng.standard_normal(shape[-1])
    data = relay.var("x", shape=shape)
    twice = bool(rng.integers(2))
    y = standard(rng, relay.add(data, relay.multiply(data, number(0.5))) if twice else data, (-1,))
    body = relay.add(relay.multiply(y, constant(gamma)), constant(beta))
    return Case(body, x, standard_in_numpy(x * 1.5 if twice else x, (-1,)) * gamma + beta)


def softmax(rng: Rng) -> Case:
    shape = tuple(map(int, rng.integers(2, 8, 3)))
    x, data = rng.standard_normal(shape), relay.var("x", shape=shape)
    e = relay.exp(relay.subtract(data, relay.max(data, axis=(-1,), keepdims=True)))
    want = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    return Case(relay.divide(e, relay.sum(e, axis=(-1,), keepdims=True)), x, want)


def group_norm(rng: Rng) -> Case:
    """In the shape of groups, or of groups and all else as torch writes it; then a scale, a shift and SiLU."""
    n, groups, each, h, w = map(int, rng.integers(1, 5, 5))
    shape, channels = (n, groups * each, h + 1, w), groups * each
    split = (n, groups, each, h + 1, w) if rng.random() < 0.5 else (n, groups, each * (h + 1) * w)
    x, gamma, beta = rng.standard_normal(shape), *(rng.standard_normal((channels, 1, 1)) for _ in range(2))
    normal = standard(rng, relay.reshape(relay.var("x", shape=shape), split), tuple(range(2, len(split))))
    y = relay.add(relay.multiply(relay.reshape(normal, shape), constant(gamma)), constant(beta))
    z = standard_in_numpy(x.reshape(split), tuple(range(2, len(split)))).reshape(shape) * gamma + beta
    return Case(relay.multiply(y, relay.sigmoid(y)), x, z / (1 + np.exp(-z)))


def group_norm_operator(rng: Rng) -> Case:
    n, groups, each, h, w = map(int, rng.integers(2, 5, 5))
    x, (gamma, beta) = rng.standard_normal((n, groups * each, h, w)), rng.standard_normal((2, groups * each))
    data = relay.var("x", shape=x.shape)
    body = relay.nn.group_norm(data, constant(gamma), constant(beta), num_groups=groups)
    z = standard_in_numpy(x.reshape(n, groups, each, h, w), (2, 3, 4)).reshape(x.shape)
    return Case(body, x, z * gamma[:, None, None] + beta[:, None, None])


CASES = {f.__name__: f for f in (layer_norm, softmax, group_norm, group_norm_operator)}


@pytest.mark.parametrize("name", CASES)
def test_whatever_the_spelling_it_is_one_group_of_rows(name: str) -> None:
    rng = np.random.default_rng([17, len(name)])
    for _ in range(6):
        case = CASES[name](rng)
        function = Function(free_vars(case.body), case.body)
        tasks, _ = extract_tasks(function, {}, "cuda")
        rows = [row_program(task.compute_dag.init_state) for task in tasks if not moves_nothing(task.desc)]
        assert len(rows) == 1 and rows[0] is not None, [task.desc for task in tasks]
        fused = optimize(function, {}, "cuda")
        got = run(fused, {"x": case.x.astype("float32")}, dtype="float64")
        assert np.allclose(got, case.want, rtol=1e-5, atol=1e-5 * np.abs(case.want).max())
        for group in group_uses(fused):
            check_group(group, "cuda", rng)


def moves_nothing(desc: str) -> bool:
    return all(name.startswith("fused_reshape") and name[13:].strip("_0123456789") == "" for name in desc.split(","))


def drawn_graph(rng: Rng) -> Expr:
    """Elementwise operators and reductions that keep their places, over rows, columns and all, read by one another."""
    shape = (3, 4, 5)
    known: list[Expr] = [relay.var("x", shape=shape)]
    for _ in range(int(rng.integers(3, 14))):
        a, b = (known[int(k)] for k in rng.integers(max(0, len(known) - 4), len(known), 2))
        axes = ((2,), (1, 2), (1,), (2,))[int(rng.integers(4))]
        match rng.integers(6):
            case 0 | 1:
                known.append(relay.mean(a, axis=axes, keepdims=True))
            case 2:
                known.append(relay.subtract(a, b))
            case 3:
                known.append(relay.multiply(a, b))
            case 4:
                known.append(relay.tanh(a))
            case _:
                flat = relay.reshape(a, (3, -1)) if a.shape == shape else a
                known.append(relay.sigmoid(relay.reshape(flat, a.shape)))
    read = {id(c) for e in known for c in post_order(e) if c is not e}
    ends = [e for e in known if id(e) not in read]
    return Tuple(tuple(ends)) if len(ends) > 1 else ends[0]


def test_random_graphs_of_rows_and_columns_keep_their_meaning() -> None:
    rng = np.random.default_rng(18)
    joined = 0
    for _ in range(60):
        body = drawn_graph(rng)
        function = Function(free_vars(body), body)
        x = rng.standard_normal((3, 4, 5)).astype("float32")
        with PassContext(opt_level=3):
            plain, rows = FuseOps()(function), FuseOps(rows=True)(RowShapes()(function))
        joined += len(group_uses(rows)) < len(group_uses(plain))
        want, got = run(function, {"x": x}, dtype="float64"), run(rows, {"x": x}, dtype="float64")
        for w, g in zip(*[v if isinstance(v, tuple) else (v,) for v in (want, got)], strict=True):
            assert np.allclose(g, w, rtol=1e-9, atol=1e-9)
    assert joined > 10


def test_a_chain_of_norms_is_several_groups() -> None:
    """Twelve reductions of the same rows would be thousands of sketches."""
    x = relay.var("x", shape=(3, 8))
    y: Expr = x
    for _ in range(4):
        y = relay.nn.layer_norm(relay.add(y, x), constant(np.ones(8)), constant(np.ones(8)))
    with PassContext(opt_level=3):
        groups = list(group_uses(FuseOps(rows=True)(SimplifyInference()(Function([x], y)))))
    folds = [sum(isinstance(e, Call) and e.op.name == "mean" for e in post_order(g.body)) for g in groups]
    assert sum(folds) == 12 and max(folds) == 4


def test_columns_and_what_others_read_stay_apart() -> None:
    x = relay.var("x", shape=(6, 8))
    mean = relay.mean(x, axis=(0,), keepdims=True)
    column = relay.subtract(x, mean)
    assert len(group_uses(FuseOps(rows=True)(Function([x], column)))) == 2
    y = relay.var("y", shape=(3, 4, 5))
    centred = relay.subtract(y, relay.mean(y, axis=(2,), keepdims=True))
    two_kinds = relay.subtract(centred, relay.mean(centred, axis=(1, 2), keepdims=True))
    assert len(group_uses(FuseOps(rows=True)(Function([y], two_kinds)))) == 2
    outer = relay.add(relay.subtract(y, relay.mean(y, axis=(2,), keepdims=True)), relay.var("z", shape=(2, 3, 4, 5)))
    assert len(group_uses(FuseOps(rows=True)(Function(free_vars(outer), outer)))) == 2
    mean = relay.mean(x, axis=(1,), keepdims=True)
    both = Tuple((relay.subtract(x, mean), mean))
    fused = FuseOps(rows=True)(Function([x], both))
    assert len(group_uses(fused)) == 2
