"""softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Sequence

from ...computation.tensor import Tensor, compute
from ...expr import reduction
from ...expr.expr import Expr, IterVar, call
from ..utils import normal_axis
from .wide import summed_wide


def _insert(indices: Sequence[Expr], axis: int, k: IterVar) -> list[Expr]:
    return [*indices[:axis], k, *indices[axis:]]


def _without(indices: Sequence[Expr], axis: int) -> list[Expr]:
    return [*indices[:axis], *indices[axis + 1 :]]


def _max_element(x: Tensor, axis: int, shape: Sequence[int]) -> Tensor:
    k = reduction.reduce_axis((0, x.shape[axis]), "k")
    return compute(shape, lambda *i: reduction.max(x[_insert(i, axis, k)], axis=k), "T_softmax_maxelem")


@summed_wide
def softmax(x: Tensor, axis: int = -1) -> Tensor:
    """`exp(x - max) / sum(exp(x - max))` along `axis`, in four stages."""
    at = normal_axis(axis, x.ndim, "softmax")
    reduced = [*x.shape[:at], *x.shape[at + 1 :]]
    largest = _max_element(x, at, reduced)
    exp = compute(x.shape, lambda *i: call("exp", x[i] - largest[_without(i, at)]), "T_softmax_exp")
    k = reduction.reduce_axis((0, x.shape[at]), "k")
    total = compute(reduced, lambda *i: reduction.sum(exp[_insert(i, at, k)], axis=k), "T_softmax_expsum")
    return compute(
        x.shape, lambda *i: exp[i] / total[_without(i, at)], "T_softmax_norm", "softmax_output", {"axis": at}
    )


@summed_wide
def log_softmax(x: Tensor, axis: int = -1) -> Tensor:
    """`x - max - log(sum(exp(x - max)))` along `axis`, in three stages."""
    at = normal_axis(axis, x.ndim, "log_softmax")
    reduced = [*x.shape[:at], *x.shape[at + 1 :]]
    largest = _max_element(x, at, reduced)
    k = reduction.reduce_axis((0, x.shape[at]), "k")
    total = compute(reduced, lambda *i: reduction.sum(call("exp", x[_insert(i, at, k)] - largest[tuple(i)]), axis=k))
    return compute(
        x.shape,
        lambda *i: x[i] - largest[_without(i, at)] - call("log", total[_without(i, at)]),
        tag="log_softmax_output",
    )
