"""What PyTorch's trace says otherwise than its kernels, and ends that few models have: as in eager mode, exactly."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import relay_lite as relay
from relay_lite import reference
from relay_lite.ir.errors import GraphError
from relay_lite.pytorch import optimize
from relay_lite.pytorch.dynamo import ansor
from tests.nonempty import nonempty

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    with torch.no_grad():
        yield


def same(function: Callable[..., Any], *inputs: Any) -> None:
    """Compiled, a function gives what it does in eager mode, and leaves its inputs as there."""
    one, two = ([x.clone() for x in inputs] for _ in range(2))
    want, got = function(*one), torch.compile(function, backend=ansor, dynamic=False)(*two)
    pairs = zip(
        [*torch.utils._pytree.tree_leaves(got), *two], [*torch.utils._pytree.tree_leaves(want), *one], strict=True
    )
    for g, w in nonempty(pairs):
        torch.testing.assert_close(g, w, rtol=2e-5, atol=1e-6)


ENDS = [(0, 7, 50), (-3, 3, 13), (5, -9, 29), (0, 1, 2), (4, 9, 1), (-100, 100, 77)]


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.float32, torch.float64])
@pytest.mark.parametrize("start, end, steps", ENDS)
def test_linspace(start: int, end: int, steps: int, dtype: torch.dtype) -> None:
    """Decomposed, integers are cut floats, some of which fall short of what they are."""
    same(lambda x: x + torch.linspace(start, end, steps, dtype=dtype), torch.ones((), dtype=dtype))


class Spaced(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x + torch.linspace(0, 7, 50, dtype=torch.int64), x + torch.linspace(x, 9.0, 5)


def test_linspace_of_an_exported_program() -> None:
    """Also from a tensor, which is another overload."""
    x = torch.ones(())
    mod, _ = relay.frontend.from_exported_program(torch.export.export(Spaced(), (x,)))
    (name,) = [v.name for v in mod["main"].params]
    for got, want in nonempty(zip(reference.run(mod, {name: x.numpy()}), Spaced()(x), strict=True)):
        np.testing.assert_allclose(got, want.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int8, torch.float32])
@pytest.mark.parametrize("start, end, steps", [(0.5, 7.9, 5), (-0.9, 3.7, 9), (1.5, -2.5, 7), (3.9, 3.1, 4)])
def test_linspace_between_floats(start: float, end: float, steps: int, dtype: torch.dtype) -> None:
    """Where integers are asked for, its ends are integers, too."""
    same(lambda x: x + torch.linspace(start, end, steps, dtype=dtype), torch.ones((), dtype=dtype))


@pytest.mark.parametrize("base", [2.0, 10.0])
@pytest.mark.parametrize("steps", [1, 2, 7])
def test_logspace(base: float, steps: int) -> None:
    same(lambda x: x + torch.logspace(-1, 2, steps, base=base), torch.ones(()))


@pytest.mark.parametrize("ends", [(0.1, -7.9, -4.0), (0.9, 9.1, 2.5), (-3.7, 4.2, 1.0), (0, 10, 3)])
def test_arange_of_integers_counts_in_integers(ends: tuple[float, float, float]) -> None:
    same(lambda x: x + torch.arange(*ends, dtype=torch.int64), torch.ones((), dtype=torch.int64))


@pytest.mark.parametrize("dims", [(), (0,), (-1, 0), (1,)])
def test_flip(dims: tuple[int, ...]) -> None:
    same(lambda x: torch.flip(x, dims) + 1, torch.randn(3, 4, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_scalars_in_order(dtype: torch.dtype) -> None:
    x = torch.tensor(1, dtype=dtype)
    same(torch.sort, x)
    same(lambda x: torch.argsort(x, dim=-1, descending=True), x)
    same(lambda x: torch.flip(x, ()), x)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_tensors_of_another_dtype_than_the_trace_promises(dtype: torch.dtype) -> None:
    """Running averages of halves: this operator of PyTorch gives halves where its trace has float32."""
    x = torch.randn(5, 5, 5).to(dtype)
    others = [torch.rand(5).to(dtype) for _ in range(4)]
    same(lambda *given: torch.ops.aten._batch_norm_with_update(*given, 0.5, 0.6), x, *others)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [(3, 5), (9, 4), (7, 5)])
def test_averages_of_other_windows_than_one_of_infinities(size: tuple[int, int], dtype: torch.dtype) -> None:
    """Windows that differ in size: none knows what lies beside it, and halves are not summed in halves."""
    x = torch.full((2, 3, 7, 6), 30000).to(dtype)
    x[0, 0, 1, 2], x[0, 1, 4, 5], x[1, 2, 3, 3] = float("nan"), float("inf"), -float("inf")
    want, got = torch.nn.functional.adaptive_avg_pool2d(x, size), torch.compile(
        lambda x: torch.nn.functional.adaptive_avg_pool2d(x, size), backend=ansor, dynamic=False
    )(x)  # fmt: skip
    assert want.isfinite().any() and not want.isfinite().all()
    torch.testing.assert_close(got, want, equal_nan=True)


class Counter(torch.nn.Module):
    """Writes to its buffers, and to what it is given, at every call."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("average", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.average.mul_(0.5).add_(x.mean(0), alpha=0.5)
        return x.sub_(self.average)


def test_optimize_does_not_run_the_model() -> None:
    """What a call writes to is as it was when the model has been compiled."""
    model, eager, x = Counter().eval(), Counter().eval(), torch.randn(4, 3)
    given = x.clone()
    fast = optimize(model, (given,))
    assert model.calls == 0 and torch.equal(given, x) and not model.average.any()
    for _ in range(3):
        torch.testing.assert_close(fast(x.clone()), eager(x.clone()))
    assert model.calls == eager.calls == 3
    torch.testing.assert_close(model.average, eager.average)


class Solved(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x + 1) @ torch.linalg.cholesky(x @ x.t())


def test_checks_of_linear_algebra_are_made_in_modules_of_optimize() -> None:
    """They hang together by tokens in an exported program, which are neither weights nor inputs.

    PyTorch 2.11 exports none.
    """
    x = torch.randn(4, 4) + 4 * torch.eye(4)
    fast = optimize(Solved().eval(), (x,))
    torch.testing.assert_close(fast(x), Solved()(x), rtol=1e-3, atol=1e-4)
    exported = torch.export.export(Solved().eval(), (x,)).run_decompositions()
    if any("with_effects" in str(node.target) for node in exported.graph.nodes):
        with pytest.raises(torch.linalg.LinAlgError):
            fast(torch.zeros(4, 4))


def test_copies_of_modules_of_optimize() -> None:
    """A copy, and one from a file, has weights and programs of its own."""
    model, x = torch.nn.Linear(4, 3).eval(), torch.randn(2, 4)
    fast = optimize(model, (x,))
    for other in (copy.deepcopy(fast), pickle.loads(pickle.dumps(fast))):
        torch.testing.assert_close(other(x), model(x))
        other.model.weight.zero_()
        torch.testing.assert_close(other(x), model.bias.expand(2, 3))
        torch.testing.assert_close(fast(x), model(x))


def test_a_module_of_optimize_that_is_put_into_training() -> None:
    fast = optimize(torch.nn.BatchNorm1d(3).eval(), (torch.ones(2, 3),))
    fast.train()
    with pytest.raises(GraphError, match="must not be training"):
        fast(torch.ones(2, 3))


class Shifted(torch.nn.Module):
    def __init__(self, by: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("by", by)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 + self.by


def test_tensors_that_lie_in_memory_with_the_other_sign() -> None:
    """The imaginary parts of conjugates are views of what lies there, negated when it is read."""
    x, one = torch.randn(3, 4), torch.complex(torch.ones(1), torch.ones(1)).conj().imag
    assert one.is_neg() and one.is_contiguous()
    for negated in nonempty([torch._neg_view(x), one, torch._neg_view(x).t()]):
        for by in (torch.ones(1), one):
            model = Shifted(by).eval()
            torch.testing.assert_close(optimize(model, (negated.resolve_neg(),))(negated), model(negated))
            torch.testing.assert_close(torch.compile(model, backend=ansor)(negated), model(negated))
            torch._dynamo.reset()


def test_optimize_leaves_the_modes_of_parts() -> None:
    """Dropout that is left on in a model for inference, to draw samples."""
    model, x = torch.nn.Sequential(torch.nn.Linear(4, 50), torch.nn.Dropout(0.5)).eval(), torch.randn(2, 4)
    model[1].train()
    fast = optimize(model, (x,))
    assert model[1].training
    torch.manual_seed(0)
    want = model(x)
    torch.manual_seed(0)
    torch.testing.assert_close(fast(x), want)
