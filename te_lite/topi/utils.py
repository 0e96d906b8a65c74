"""Small things every operator needs, some of which users import."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, overload

from ..computation.tensor import ComputeOp, Operation, Tensor, compute
from ..errors import ExprError, require
from ..expr.dtype import python_number
from ..expr.expr import Const, ExprLike
from . import tag as tags


def get_const_int(value: Any) -> int:
    """`value` (int, NumPy integer or integer constant) as an int; raises ExprError for anything else."""
    value = python_number(simplify(value))
    require(isinstance(value, int), ExprError, "topi", "a constant integer is needed", got=value)
    return int(value)


def get_const_tuple(values: Iterable[Any]) -> tuple[int, ...]:
    """The elements as ints, e.g. of a shape."""
    return tuple([get_const_int(v) for v in values])


def simplify(value: Any) -> Any:
    """A constant expression as a Python number, anything else as it is."""
    return value.value if isinstance(value, Const) else value


def per_dim(value: int | Sequence[int], n: int, what: str) -> tuple[int, ...]:
    """`value` as one integer for each of `n` dimensions; a single integer is repeated."""
    values = (get_const_int(value),) * n if not isinstance(value, Sequence) else get_const_tuple(value)
    require(len(values) == n, ExprError, what, f"one integer or {n} are needed", got=value)
    return values


def normal_axis(axis: int, ndim: int, what: str) -> int:
    """`axis` counted from the front; raises ExprError when it is not in [-ndim, ndim)."""
    require(-ndim <= axis < ndim, ExprError, what, f"the axis must be in [{-ndim}, {ndim})", axis=axis)
    return axis % ndim


@overload
def ax_compute(
    shape: Sequence[int],
    f: Callable[..., ExprLike],
    name: str,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor: ...


@overload
def ax_compute(
    shape: Sequence[int],
    f: Callable[..., Sequence[ExprLike]],
    name: str,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> tuple[Tensor, ...]: ...


def ax_compute(
    shape: Sequence[int],
    f: Callable[..., Any],
    name: str,
    tag: str = "",
    attrs: Mapping[str, Any] | None = None,
) -> Tensor | tuple[Tensor, ...]:
    """`compute` with the axis names `ax0, ax1, ...`."""
    names = [f"ax{k}" for k in range(len(shape))]
    made: Tensor | tuple[Tensor, ...] = compute(shape, f, name=name, tag=tag, attrs=attrs, varargs_names=names)
    return made


def ravel(indices: Sequence[ExprLike], shape: Sequence[int]) -> ExprLike:
    """The row-major position of an element."""
    out: ExprLike = indices[0] if indices else 0
    for index, size in zip(indices[1:], shape[1:], strict=True):
        out = out * size + index
    return out


def unravel(position: ExprLike, shape: Sequence[int]) -> list[ExprLike]:
    """The indices of the element at a row-major position."""
    out: list[ExprLike] = []
    for size in reversed(shape):
        out.append(position % size)
        position = position // size
    return out[::-1]


def require_steps(**steps: int) -> None:
    """Raise ExprError for a kernel, stride or dilation below 1, each given by its name."""
    for name, value in steps.items():
        require(value >= 1, ExprError, "window", f"the {name} must be at least 1", got=value)


def conv_extent(size: int, kernel: int, stride: int, before: int, after: int, dilation: int = 1) -> int:
    """How many windows fit: `(size + before + after - ((kernel - 1) * dilation + 1)) // stride + 1`.

    Raises ExprError for a stride or dilation below 1, and where no window fits.
    """
    require_steps(kernel=kernel, stride=stride, dilation=dilation)
    window, padded = (kernel - 1) * dilation + 1, size + before + after
    law = "a kernel must not be larger than the padded input" + (", by its dilation" if dilation > 1 else "")
    require(window <= padded, ExprError, "window", law, kernel=window, input=size, padding=(before, after))
    return (padded - window) // stride + 1


def traverse_inline(s: Any, final_op: Operation, callback: Callable[[Operation], None]) -> None:
    """Inline in schedule `s` every injective stage that leads to `final_op` through injective stages, and call
    `callback` on each operation visited, producers first."""
    visited: set[Any] = set()

    def visit(op: Operation) -> None:
        if op.key not in visited and isinstance(op, ComputeOp):
            visited.add(op.key)
            if tags.is_injective(op.tag):
                if op.key != final_op.key:
                    s[op.output()].compute_inline()
                for t in op.input_tensors():
                    visit(t.op)
            callback(op)

    visit(final_op)


def same_rank(tensors: Sequence[Tensor], what: str) -> int:
    """The number of dimensions of all `tensors`."""
    ranks = {t.ndim for t in tensors}
    require(len(ranks) == 1, ExprError, what, "all tensors must have the same number of dimensions",
            shapes=[t.shape for t in tensors])  # fmt: skip
    return ranks.pop()


def resolve_shape(newshape: Sequence[int], size: int, what: str) -> tuple[int, ...]:
    """`newshape` with its one -1 replaced so that it holds `size` elements."""
    dims = list(get_const_tuple(newshape))
    known = math.prod([d for d in dims if d != -1])
    require(dims.count(-1) <= 1, ExprError, what, "at most one dimension may be -1", newshape=tuple(dims))
    if -1 in dims:
        dims[dims.index(-1)] = size // known
    require(math.prod(dims) == size, ExprError, what, f"the new shape must hold {size} elements", newshape=tuple(dims))
    return tuple(dims)


def layout_axes(layout: str, ndim: int, what: str) -> tuple[int, int, list[int]]:
    """The positions of N, of C and of the spatial dimensions in a layout like "NCHW"."""
    law = f"the layout {layout} is one of {len(layout)} dimensions"
    require(len(layout) == ndim, ExprError, what, law, dimensions=ndim)
    ok = "N" in layout and "C" in layout and layout.isalpha() and layout.isupper()
    require(ok, ExprError, what, f"the layout must name N, C and {ndim - 2} spatial dimensions", layout=layout)
    return layout.index("N"), layout.index("C"), [d for d, letter in enumerate(layout) if letter not in "NC"]
