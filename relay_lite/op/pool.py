"""Pooling: by windows, to a given size (adaptive), and over everything (global)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from te_lite import Tensor, topi
from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import call
from ..ir.nodes import Call, Expr
from ..ir.op_registry import Attrs, OpPattern
from ..ir.types import TensorType, Type
from .conv import DATA, Ints, window_attrs
from .define import Array, Shape, define, floats, numbers, rank, tensors
from .numpy_windows import adaptive_pool
from .window import SPATIAL, Window, check_layout, pick, repeated, to_layout

Check = Callable[[TensorType, str], str]
CHECKS: dict[str, Check] = {"max": numbers, "avg": floats}


def _window(attrs: Attrs, n: int, what: str) -> tuple[Window, Shape]:
    """The windows, and the room at the end that `ceil_mode` adds."""
    window = Window.of(attrs["pool_size"], attrs["strides"], attrs["dilation"], attrs["padding"], n, what)
    return window, tuple(s - 1 if attrs["ceil_mode"] else 0 for s in window.strides)


def _pool_type(types: Sequence[Type], attrs: Attrs, n: int, kind: str, what: str) -> Type:
    (x,) = tensors(types, 1, what)
    rank(x, n + 2, what)
    CHECKS[kind](x, what)
    layout = check_layout(attrs["layout"], f"NC{SPATIAL[n]}", what)
    law = "a layout of the result of its own is not supported"
    require(attrs["out_layout"] in ("", layout), GraphError, what, law, out_layout=attrs["out_layout"])
    window, extra = _window(attrs, n, what)
    size = pick(x.shape, layout, SPATIAL[n])
    out = window.extents(size, what, extra)
    _check_last_window(window, size, out, what)
    extents = dict(zip(SPATIAL[n], out, strict=True))
    return TensorType(tuple(extents.get(letter, m) for letter, m in zip(layout, x.shape, strict=True)), x.dtype)


def _check_last_window(window: Window, size: Shape, out: Shape, what: str) -> None:
    starts = [(o - 1) * s for o, s in zip(out, window.strides, strict=True)]
    inside = all(v < b + n + a for v, b, n, a in zip(starts, window.before, size, window.after, strict=True))
    require(inside, GraphError, what, "the last window of ceil_mode would lie outside the padded data", data=size,
            pool_size=window.kernel, strides=window.strides)  # fmt: skip


def _counts(window: Window, extra: Shape, size: Shape, include_pad: bool, dtype: Any) -> Array:
    """How many elements each window averages over: the product of those along each dimension."""
    out: Array = np.ones((1,) * len(size), dtype)
    for d, m in enumerate(size):
        line = [np.full(v, w, dtype) for v, w in (
            (window.before[d], include_pad), (m, 1), (window.after[d], include_pad), (extra[d], 0)
        )]  # fmt: skip
        one = Window((window.kernel[d],), (window.strides[d],), (window.dilation[d],), (0,), (0,))
        counts = one.view(np.concatenate(line)).sum(-1)
        out = out * counts.reshape([-1 if k == d else 1 for k in range(len(size))])
    return np.maximum(out, 1)


def _pool_numpy(args: Sequence[Any], attrs: Attrs, n: int, kind: str, what: str) -> Array:
    layout, plain = attrs["layout"], f"NC{SPATIAL[n]}"
    x = to_layout(args[0], layout, plain)
    window, extra = _window(attrs, n, what)
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    view = window.view(window.padded(x, lowest if kind == "max" else 0, extra))
    places: list[Any] = [(..., *at) for at in np.ndindex(*window.kernel)]
    taps = [view[at] for at in places]
    out = taps[0].copy()
    for tap in taps[1:]:
        out = np.maximum(out, tap) if kind == "max" else out + tap
    if kind == "avg":
        out = out / _counts(window, extra, x.shape[2:], attrs["count_include_pad"], x.dtype)
    return np.ascontiguousarray(to_layout(out, plain, layout))


def _pool_te(args: Sequence[Any], attrs: Attrs, n: int, kind: str, what: str) -> list[Tensor]:
    window, _ = _window(attrs, n, what)
    pool = (topi.nn.pool1d, topi.nn.pool2d, topi.nn.pool3d)[n - 1]
    include = attrs["count_include_pad"] if kind == "avg" else True
    return [
        pool(args[0], window.kernel, window.strides, window.dilation, window.padding, kind, attrs["ceil_mode"],
             attrs["layout"], include)
    ]  # fmt: skip


def _define_pool(n: int, kind: str) -> None:
    name = f"nn.{kind}_pool{n}d"
    define(
        name,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        lambda types, attrs: _pool_type(types, attrs, n, kind, name),
        lambda args, attrs: _pool_numpy(args, attrs, n, kind, name),
        lambda args, attrs, target: _pool_te(args, attrs, n, kind, name),
        pool_size=(1,) * n,
        strides=(1,) * n,
        dilation=(1,) * n,
        padding=(0,) * 2 * n,
        layout=DATA[n],
        out_layout="",
        ceil_mode=False,
        **({"count_include_pad": False} if kind == "avg" else {}),
    )


# -------------------------------------------------------------------------------------- adaptive and global


def _output_size(attrs: Attrs, size: Shape, what: str) -> Shape:
    """The extents that are asked for; those of the data when none are."""
    if attrs["output_size"] is None:
        return size
    wanted = repeated(attrs["output_size"], len(size), what)
    ok = len(wanted) == len(size) and min(wanted) > 0
    law = f"output_size must be {len(size)} integers of at least 1"
    require(ok, GraphError, what, law, output_size=attrs["output_size"])
    return wanted


def _adaptive_type(types: Sequence[Type], attrs: Attrs, n: int, kind: str, what: str) -> Type:
    (x,) = tensors(types, 1, what)
    rank(x, n + 2, what)
    CHECKS[kind](x, what)
    layout = check_layout(attrs["layout"], f"NC{SPATIAL[n]}", what)
    wanted = _output_size(attrs, pick(x.shape, layout, SPATIAL[n]), what)
    extents = dict(zip(SPATIAL[n], wanted, strict=True))
    return TensorType(tuple(extents.get(letter, m) for letter, m in zip(layout, x.shape, strict=True)), x.dtype)


def _adaptive_numpy(args: Sequence[Any], attrs: Attrs, n: int, kind: str, what: str) -> Array:
    plain = f"NC{SPATIAL[n]}"
    x = to_layout(args[0], attrs["layout"], plain)
    out = adaptive_pool(x, _output_size(attrs, x.shape[2:], what), kind)
    return np.ascontiguousarray(to_layout(out, plain, attrs["layout"]))


def _adaptive_te(args: Sequence[Any], attrs: Attrs, n: int, kind: str, what: str) -> list[Tensor]:
    pool = (topi.nn.adaptive_pool1d, topi.nn.adaptive_pool, topi.nn.adaptive_pool3d)[n - 1]
    size = _output_size(attrs, pick(args[0].shape, attrs["layout"], SPATIAL[n]), what)
    return [pool(args[0], size, kind, attrs["layout"])]


def _define_adaptive(n: int, kind: str) -> None:
    name = f"nn.adaptive_{kind}_pool{n}d"
    define(
        name,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        lambda types, attrs: _adaptive_type(types, attrs, n, kind, name),
        lambda args, attrs: _adaptive_numpy(args, attrs, n, kind, name),
        lambda args, attrs, target: _adaptive_te(args, attrs, n, kind, name),
        output_size=None,
        layout=DATA[n],
    )


def _define_global(kind: str) -> None:
    name = f"nn.global_{kind}_pool2d"
    everything = {"output_size": (1, 1)}
    define(
        name,
        OpPattern.OUT_ELEMWISE_FUSABLE,
        lambda types, attrs: _adaptive_type(types, {**attrs, **everything}, 2, kind, name),
        lambda args, attrs: _adaptive_numpy(args, {**attrs, **everything}, 2, kind, name),
        lambda args, attrs, target: [topi.nn.global_pool(args[0], kind, attrs["layout"])],
        layout="NCHW",
    )


for _kind in ("max", "avg"):
    for _n in (1, 2, 3):
        _define_pool(_n, _kind)
        _define_adaptive(_n, _kind)
    _define_global(_kind)


# ---------------------------------------------------------------------------------------------------- calls


def _max_pool(n: int) -> Callable[..., Call]:
    name = f"nn.max_pool{n}d"

    def apply(
        data: Expr,
        pool_size: Ints = (1,) * n,
        strides: Ints = (1,) * n,
        dilation: Ints = (1,) * n,
        padding: Ints = (0,) * n,
        layout: str = DATA[n],
        out_layout: str = "",
        ceil_mode: bool = False,
    ) -> Call:
        return _call(n, name, data, pool_size, strides, dilation, padding, layout, out_layout, ceil_mode)

    return _named(apply, f"max_pool{n}d", "The maximum of every window")


def _avg_pool(n: int) -> Callable[..., Call]:
    name = f"nn.avg_pool{n}d"

    def apply(
        data: Expr,
        pool_size: Ints = (1,) * n,
        strides: Ints = (1,) * n,
        dilation: Ints = (1,) * n,
        padding: Ints = (0,) * n,
        layout: str = DATA[n],
        out_layout: str = "",
        ceil_mode: bool = False,
        count_include_pad: bool = False,
    ) -> Call:
        return _call(n, name, data, pool_size, strides, dilation, padding, layout, out_layout, ceil_mode,
                     count_include_pad=count_include_pad)  # fmt: skip

    return _named(apply, f"avg_pool{n}d", "The mean of every window (with `count_include_pad`, of its padding too)")


def _call(
    n: int, name: str, data: Expr, pool_size: Ints, strides: Ints, dilation: Ints, padding: Ints, layout: str,
    out_layout: str, ceil_mode: bool, **rest: bool,
) -> Call:  # fmt: skip
    return call(name, data, pool_size=repeated(pool_size, n, name), layout=layout, out_layout=out_layout,
                ceil_mode=ceil_mode, **window_attrs(n, name, strides, padding, dilation), **rest)  # fmt: skip


def _adaptive(n: int, kind: str) -> Callable[..., Call]:
    name = f"nn.adaptive_{kind}_pool{n}d"

    def apply(data: Expr, output_size: Ints | None = None, layout: str = DATA[n]) -> Call:
        return call(name, data, output_size=output_size, layout=layout)

    doc = f"Pool ({kind}) to `output_size` by windows `[o * in // out, ceil((o + 1) * in / out))`"
    return _named(apply, f"adaptive_{kind}_pool{n}d", doc)


def _global(n: int, kind: str) -> Callable[..., Call]:
    """TVM's names: in one and three dimensions, global pools are adaptive ones to an extent of 1."""

    def apply(data: Expr, layout: str = DATA[n]) -> Call:
        if n == 2:
            return call(f"nn.global_{kind}_pool2d", data, layout=layout)
        return call(f"nn.adaptive_{kind}_pool{n}d", data, output_size=(1,) * n, layout=layout)

    return _named(apply, f"global_{kind}_pool{n}d", f"Pool ({kind}) all spatial dimensions to 1")


def _named(f: Callable[..., Call], name: str, doc: str) -> Callable[..., Call]:
    f.__name__ = f.__qualname__ = name
    f.__doc__ = f"{doc}; `padding` as in convolutions." if "window" in doc else f"{doc}."
    return f


max_pool1d, max_pool2d, max_pool3d = (_max_pool(n) for n in (1, 2, 3))
avg_pool1d, avg_pool2d, avg_pool3d = (_avg_pool(n) for n in (1, 2, 3))
adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = (_adaptive(n, "max") for n in (1, 2, 3))
adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = (_adaptive(n, "avg") for n in (1, 2, 3))
global_max_pool1d, global_max_pool2d, global_max_pool3d = (_global(n, "max") for n in (1, 2, 3))
global_avg_pool1d, global_avg_pool2d, global_avg_pool3d = (_global(n, "avg") for n in (1, 2, 3))
