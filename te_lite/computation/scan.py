"""Scans: operations whose elements follow from one another along the last axis, such as running sums and merges."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from ..errors import ExprError, require
from ..expr.dtype import DTYPE_LAW, DTYPES
from ..expr.element import Before, Carried
from ..expr.expr import ExprLike, Reduce
from ..expr.visit import walk
from .tensor import ComputeOp, Tensor, compute


@overload
def scan(
    shape: Sequence[int], fcompute: Callable[..., ExprLike], dtype: str = ..., name: str = ..., tag: str = ...,
    attrs: Mapping[str, Any] | None = ...,
) -> Tensor: ...  # fmt: skip


@overload
def scan(
    shape: Sequence[int], fcompute: Callable[..., Sequence[ExprLike]], dtype: Sequence[str], name: str = ...,
    tag: str = ..., attrs: Mapping[str, Any] | None = ...,
) -> tuple[Tensor, ...]: ...  # fmt: skip


def scan(
    shape: Sequence[int],
    fcompute: Callable[..., Any],
    dtype: str | Sequence[str] = "float32",
    name: str = "scan",
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """Declare a tensor, element after element along its last axis: a running sum is `lambda before, i: before + x[i]`.

    `fcompute` takes the element before, which is 0 for the first one, then one index per dimension.  With several
    dtypes it takes and gives one value for each, and as many tensors are returned; values behind output `k` may read
    its present element, `before[k].now`.  Each line along the last axis is computed in order, lines side by side; time
    and memory are linear, and what nobody reads is not kept.  Raises ExprError for a shape without an axis and for
    values of other dtypes.
    """
    law = "a shape is needed, then lambda before, i: before + x[i]; no tensors of states as in TVM"
    require(not isinstance(shape, Tensor) and callable(fcompute), ExprError, name, law, got=(shape, fcompute))
    several = not isinstance(dtype, str)
    dtypes = tuple(dtype) if several else (str(dtype),)
    require(dtypes and all(d in DTYPES for d in dtypes), ExprError, name, DTYPE_LAW, dtype=dtype)
    dims = tuple(shape) if isinstance(shape, Sequence) else (shape,)
    require(dims, ExprError, name, "a scan has an axis to run along", shape=dims)
    names = [f".v{k}" if several else "" for k in range(len(dtypes))]
    present = [Carried(f"{name}.now{n}", d, k) for k, (n, d) in enumerate(zip(names, dtypes, strict=True))]
    before = [Before(f"{name}.before{n}", p.dtype, p.output, p) for n, p in zip(names, present, strict=True)]

    def element(*indices: Any) -> Any:
        values = fcompute(before if several else before[0], *indices)
        return tuple(values) if several else values

    own = [p.name for p in inspect.signature(fcompute).parameters.values() if p.kind is not p.VAR_POSITIONAL][1:]
    indices = own or [f"i{k}" for k in range(len(dims))]
    law = "one index per dimension is needed behind the element before"
    require(len(indices) == len(dims), ExprError, name, law, shape=dims, indices=indices)
    made: Tensor | tuple[Tensor, ...] = compute(dims, element, name, tag, attrs, varargs_names=indices)
    tensors = made if isinstance(made, tuple) else (made,)
    given = tuple([t.dtype for t in tensors])
    require(given == dtypes, ExprError, name, "an element has the dtype of the one before", dtypes=dtypes, got=given)
    op = tensors[0].op
    for k, body in enumerate(op.body if isinstance(op, ComputeOp) else ()):
        folds = any(isinstance(e, Reduce) for e in walk(body))
        require(not folds, ExprError, name, "a reduction is a compute of its own; give it one, and read that here")
        late = [e.name for e in walk(body) if type(e) is Carried and e.output >= k]
        require(not late, ExprError, name, "a value reads the present elements of outputs in front of it", got=late)
    return made
