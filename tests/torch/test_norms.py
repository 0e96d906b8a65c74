"""Batch, instance and group norms: two reductions that read the data, one kernel that writes, and digits enough."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import numpy as np
import pytest
import torch

import relay_lite as relay
from relay_lite import reference
from relay_lite.compiler.optimize import optimize
from relay_lite.ir.nodes import Expr, FunctionCall
from relay_lite.ir.visit import is_op, post_order
from tests.torch.test_operators import imported

F = torch.nn.functional
pytestmark = pytest.mark.torch
Norm = Callable[..., Any]
SHAPE = (4, 6, 12, 10)
OFFSETS = (0.0, 1e3, -1e4)
NORMS: dict[str, Norm] = {
    "batch": lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
    "instance": lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
    "group": lambda x, w, b: F.group_norm(x, 3, w, b),
    "one group": lambda x, w, b: F.group_norm(x, 1, w, b),
    "groups of one": lambda x, w, b: F.group_norm(x, 6, w, b),
    "plain": lambda x: F.group_norm(x, 3),
}


def given(name: str, shape: tuple[int, ...] = SHAPE) -> tuple[Any, ...]:
    """Data, and a weight and a bias for every channel unless the norm is plain."""
    random = torch.Generator().manual_seed(0)
    shapes = (shape,) if name == "plain" else (shape, shape[1:2], shape[1:2])
    return tuple([torch.randn(s, generator=random) for s in shapes])


def feeds(mod: relay.IRModule, inputs: tuple[Any, ...]) -> dict[str, Any]:
    return {v.name: x.numpy() for v, x in zip(mod["main"].params, inputs, strict=True)}


def error(got: Any, want: torch.Tensor) -> float:
    return float((torch.from_numpy(np.array(got)).double() - want).abs().max())


def large(nodes: Iterable[Expr], size: int) -> list[FunctionCall]:
    """The kernels that write as many elements, or more."""
    calls = [e for e in nodes if isinstance(e, FunctionCall) and not e.function.attrs["reshape_only"]]
    return [e for e in calls if prod(e.shape) >= size]


@pytest.mark.parametrize("target", ["c", "cuda"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("name", NORMS)
def test_two_reductions_read_the_data_and_one_kernel_writes(name: str, batch: int, dtype: Any, target: str) -> None:
    """A kernel in between that stored what is centred, or cast, would take as long as a reduction."""
    inputs = given(name, (batch, *SHAPE[1:]))
    mod = imported(NORMS[name], tuple([x.to(dtype) for x in inputs]))
    assert sum(is_op(e, "mean") for e in post_order(mod["main"].body)) == 2
    with relay.transform.PassContext(opt_level=3):
        found = optimize(mod, None, target)
    assert len(large(post_order(found.body), inputs[0].numel())) == 1


def test_moments_that_are_results_are_those_that_the_data_are_normalised_with() -> None:
    def norm(x: Any, mean: Any, var: Any) -> Any:
        out = torch.ops.aten._native_batch_norm_legit_functional(x, None, None, mean, var, True, 0.1, 1e-5)
        return out[0], out[3], out[4]

    x, mean, var = torch.randn(SHAPE) - 1e4, torch.randn(6), torch.rand(6)
    mod = imported(norm, (x, mean, var))
    assert sum(is_op(e, "mean") for e in post_order(mod["main"].body)) == 2
    got = reference.run(mod, feeds(mod, (x, mean, var)), {})
    for one, want, size in zip(got, norm(x.double(), mean.double(), var.double()), (1, 1e4, 1), strict=True):
        assert error(one, want) <= 2e-6 * size


@pytest.mark.parametrize("name", NORMS)
def test_an_offset_costs_no_digits(name: str) -> None:
    """As near to float64 as without an offset, where PyTorch's own float32 is 1e-4 away."""
    x, *vectors = given(name)
    mod = imported(NORMS[name], (x, *vectors))
    for offset in OFFSETS:
        inputs = (x + offset, *vectors)
        want = NORMS[name](*[e.double() for e in inputs])
        assert error(reference.run(mod, feeds(mod, inputs), {}), want) <= 3e-6, offset


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("name", ["batch", "group"])
def test_an_offset_costs_no_digits_compiled(name: str) -> None:
    x, *vectors = given(name, (2, 6, 64, 64))
    mod = imported(NORMS[name], (x, *vectors))
    net = relay.graph_executor.GraphModule(relay.build(mod, "c")["default"]())
    for offset in OFFSETS:
        inputs = (x + offset, *vectors)
        net.run(**feeds(mod, inputs))
        assert error(net.get_output(0), NORMS[name](*[e.double() for e in inputs])) <= 5e-6, offset


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", NORMS)
def test_what_is_not_finite_spoils_what_it_does_in_pytorch(name: str, value: float) -> None:
    """The element that the data are compared with may be the one, or any other."""
    for place in ((2, 3, 6, 5), (1, 2, 0, 0)):
        x, *vectors = given(name)
        x[place] = value
        mod = imported(NORMS[name], (x, *vectors))
        got, want = reference.run(mod, feeds(mod, (x, *vectors)), {}), NORMS[name](x, *vectors).numpy()
        assert np.array_equal(np.isnan(got), np.isnan(want)) and np.isnan(got).any()
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
