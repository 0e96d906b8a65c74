"""Winograd convolution: 3x3 filters of stride 1 by transforms to points and back.

Y = A^T [ (G g G^T) * (B^T d B) ] A      a tile of m x m outputs from a = m + 2 inputs squared
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

from ...computation.tensor import Tensor, compute
from ...errors import ExprError, require
from ...expr import reduction
from ...expr.expr import Expr, cast, const, logical_and, select
from ..utils import per_dim
from .conv import Ints
from .pad import pad
from .utils import Padding, get_pad_tuple

Matrix = tuple[tuple[Fraction, ...], ...]
Element = Callable[..., Expr]

_HALF = Fraction(1, 2)
POINTS = {
    2: (0, -1, 1),
    4: (0, -1, 1, _HALF, -2),
    5: (0, -1, 1, _HALF, -2, -_HALF),
    6: (0, -1, 1, _HALF, -_HALF, 2, -2),
}


def _times_linear(poly: list[Fraction], root: Fraction) -> list[Fraction]:
    """`poly * (x - root)`, lowest coefficient first."""
    shifted, scaled = [Fraction(0), *poly], [*poly, Fraction(0)]
    return [a - root * b for a, b in zip(shifted, scaled, strict=True)]


@lru_cache(maxsize=8)
def winograd_transform_matrices(tile_size: int, kernel_size: int = 3) -> tuple[Matrix, Matrix, Matrix]:
    """`(A, B, G)` of F(tile_size, kernel_size), exact: A [a, m], B [a, a], G [a, r] with a = m + r - 1.

    Cook-Toom with the interpolation points of `POINTS` and infinity.  Raises ExprError for sizes without points.
    """
    ok = kernel_size == 3 and tile_size in POINTS
    require(ok, ExprError, "winograd", "tile sizes are 2, 4, 5, 6 and the kernel is 3x3", tile_size=tile_size,
            kernel_size=kernel_size)  # fmt: skip
    points = [Fraction(p) for p in POINTS[tile_size]]
    n = len(points)
    scale = []
    for i, t in enumerate(points):
        value = Fraction(1)
        for k, u in enumerate(points):
            value *= t - u if k != i else 1
        scale.append(value)
    signed = [*scale, Fraction(1)]
    signed[0] = abs(signed[0])
    g = [[v / f for v in row] for row, f in zip(_powers(points, kernel_size), signed, strict=True)]
    rows = []
    for i, f in enumerate(scale):
        poly = [1 / f]
        for k, u in enumerate(points):
            poly = _times_linear(poly, u) if k != i else poly
        rows.append(poly)
    last = [-sum((rows[i][s] * points[i] ** n for i in range(n)), Fraction(0)) for s in range(n)]
    b = [[rows[i][s] * signed[i] for i in range(n)] + [last[s]] for s in range(n)]
    b.append([Fraction(0)] * n + [Fraction(1)])
    return _frozen(_powers(points, tile_size)), _frozen(b), _frozen(g)


def _powers(points: list[Fraction], width: int) -> list[list[Fraction]]:
    """Rows `t^0, t^1, ...` for each point, and the row of infinity."""
    return [*[[t**j for j in range(width)] for t in points], [Fraction(int(j == width - 1)) for j in range(width)]]


def _frozen(rows: list[list[Fraction]]) -> Matrix:
    return tuple([tuple(row) for row in rows])


def const_matrix(
    matrix: Sequence[Sequence[float | Fraction]], dtype: str = "float32", name: str = "const_matrix"
) -> Tensor:
    """A tensor that holds constants, as one nest of selects (marked for the compiler)."""
    rows, columns = len(matrix), len(matrix[0])

    def element(i: Expr, j: Expr) -> Expr:
        out: Expr = const(0.0, dtype)
        for r in range(rows):
            for c in range(columns):
                here = logical_and((i % rows).equal(r), (j % columns).equal(c))
                out = select(here, const(float(matrix[r][c]), dtype), out)
        return out

    return compute((rows, columns), element, name, attrs={"const_matrix": True})


def infer_tile_size(height: int) -> int:
    """The tile that GPU targets take: 4 when the height of the input is a multiple of 8, else 2."""
    return 4 if height % 8 == 0 else 2


def conv2d_winograd_nhwc(
    data: Tensor,
    weight: Tensor,
    strides: Ints,
    padding: Padding,
    dilation: Ints,
    out_dtype: str | None = None,
    pre_computed: bool = False,
    tile_size: int | None = None,
) -> Tensor:
    """3x3 convolution of [N, H, W, CI] with weight [3, 3, CI, CO], or [a, a, CO, CI] when `pre_computed`.

    `tile_size` m (2, 4, 5, 6) defaults to `infer_tile_size(H)`.  Raises ExprError for strides or dilations but 1.
    """
    _check_arguments(data, weight, strides, dilation)
    batch, height, width, channels = data.shape
    m = tile_size or infer_tile_size(height)
    dtype = out_dtype or data.dtype
    _check_weight(weight, m + 2 if pre_computed else 3, channels, pre_computed)
    a, b, g = winograd_transform_matrices(m)
    top, left, bottom, right = get_pad_tuple(padding, (3, 3))
    out_h, out_w = height + top + bottom - 2, width + left + right - 2
    nh, nw = -(-out_h // m), -(-out_w // m)
    whole = (0, bottom + nh * m - out_h, right + nw * m - out_w, 0)
    padded = pad(data, (0, top, left, 0), whole, name="data_pad")
    tiles, to, back = _tiles(padded, m, nh, nw), const_matrix(b, dtype, "B"), const_matrix(a, dtype, "A")
    axes = ("eps", "nu", "p", "ci")
    data_pack = _transformed(lambda *i: cast(dtype, tiles[i]), to, tiles.shape[2:], axes, "data_pack")
    kernel = weight
    if not pre_computed:
        packed = const_matrix(g, dtype, "G")
        kernel = _kernel_pack(lambda *i: cast(dtype, weight[i]), weight.shape[3], channels, packed, "kernel_pack")
    bgemm = _multiply(data_pack, kernel, {"layout_free_placeholders": [weight]} if pre_computed else {})
    inverse = _transformed(bgemm, back, bgemm.shape[2:], ("vh", "vw", "p", "co"), "inverse")
    return compute(
        (batch, out_h, out_w, bgemm.shape[3]),
        lambda n, h, w, co: inverse[h % m, w % m, n * nh * nw + h // m * nw + w // m, co],
        name="conv2d_winograd",
        tag="conv2d_winograd_nhwc",
    )


def _check_arguments(data: Tensor, weight: Tensor, strides: Ints, dilation: Ints) -> None:
    require(data.ndim == 4 and weight.ndim == 4, ExprError, "winograd", "data and weight must have 4 dimensions",
            data=data.shape, weight=weight.shape)  # fmt: skip
    ok = per_dim(strides, 2, "strides") == (1, 1) and per_dim(dilation, 2, "dilation") == (1, 1)
    require(ok, ExprError, "winograd", "strides and dilation must be 1", strides=strides, dilation=dilation)


def _check_weight(weight: Tensor, size: int, channels: int, pre_computed: bool) -> None:
    """[size, size, CI, CO], or [size, size, CO, CI] when `pre_computed`."""
    ok = weight.shape[:2] == (size, size) and weight.shape[3 if pre_computed else 2] == channels
    law = f"the weight must be {(size, size)} with {channels} input channels"
    require(ok, ExprError, "winograd", law, weight=weight.shape)


def _tiles(padded: Tensor, m: int, nh: int, nw: int) -> Tensor:
    """The overlapping tiles of the input, for `nh` times `nw` tiles of outputs: [a, a, N * nh * nw, CI]."""
    batch, _, _, channels = padded.shape
    return compute(
        (m + 2, m + 2, batch * nh * nw, channels),
        lambda eps, nu, p, ci: padded[p // (nh * nw), p // nw % nh * m + eps, p % nw * m + nu, ci],
        name="input_tile",
    )


def _multiply(data_pack: Tensor, kernel: Tensor, attrs: Mapping[str, Any]) -> Tensor:
    """One matrix product a point: [a, a, P, CI] with [a, a, CO, CI]."""
    alpha, _, tiles, channels = data_pack.shape
    ci = reduction.reduce_axis((0, channels), "ci")
    return compute(
        (alpha, alpha, tiles, kernel.shape[2]),
        lambda eps, nu, p, co: reduction.sum(data_pack[eps, nu, p, ci] * kernel[eps, nu, co, ci], axis=[ci]),
        name="bgemm",
        attrs=attrs,
    )


def _transformed(x: Element, m: Tensor, ends: Sequence[int], axes: Sequence[str], stage: str) -> Tensor:
    """`M^T x M` for every element of what `ends` are the extents of."""
    alpha, points = m.shape
    r_a, r_b = reduction.reduce_axis((0, alpha), "r_a"), reduction.reduce_axis((0, alpha), "r_b")
    return compute(
        (points, points, *ends),
        lambda *i: reduction.sum(x(r_a, r_b, *i[2:]) * m[r_a, i[0]] * m[r_b, i[1]], axis=[r_a, r_b]),
        name=stage,
        attrs={"auto_scheduler_simplify_const_tensor_indices": [*axes[:2], "r_a", "r_b"]},
        varargs_names=axes,
    )


def _kernel_pack(weight: Element, filters: int, channels: int, m: Tensor, stage: str) -> Tensor:
    """`G g G^T` of a weight (row, column, CI, CO) as [a, a, CO, CI]."""
    r_kh, r_kw = reduction.reduce_axis((0, 3), "r_kh"), reduction.reduce_axis((0, 3), "r_kw")
    return compute(
        (m.shape[0], m.shape[0], filters, channels),
        lambda eps, nu, co, ci: reduction.sum(
            weight(r_kh, r_kw, ci, co) * m[eps, r_kh] * m[nu, r_kw], axis=[r_kh, r_kw]
        ),
        name=stage,
    )


def conv2d_winograd_nhwc_without_weight_transform(
    data: Tensor,
    weight: Tensor,
    strides: Ints,
    padding: Padding,
    dilation: Ints,
    out_dtype: str | None = None,
    tile_size: int | None = None,
) -> Tensor:
    """`conv2d_winograd_nhwc` with a weight [a, a, CO, CI] that is transformed already."""
    return conv2d_winograd_nhwc(data, weight, strides, padding, dilation, out_dtype, True, tile_size)


def conv2d_winograd_weight_transform(kernel: Tensor, tile_size: int) -> Tensor:
    """A weight [CO, CI, 3, 3] as [a, a, CO, CI]: `G g G^T` for every filter and channel."""
    filters, channels, kh, kw = kernel.shape
    require((kh, kw) == (3, 3), ExprError, "winograd", "the kernel must be 3x3", weight=kernel.shape)
    _, _, g = winograd_transform_matrices(tile_size)
    matrix = const_matrix(g, kernel.dtype, "G")
    return _kernel_pack(lambda r, s, ci, co: kernel[co, ci, r, s], filters, channels, matrix, "transform_weight")
