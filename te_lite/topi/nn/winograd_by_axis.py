"""Winograd convolution for processors: one axis is transformed after the other, and channels are last throughout.

    rows      B^T d            tiles of m + 2 lines, of every column of the image
    points    (B^T d) B        tiles of m + 2 columns of these
    products  points x weight  a matrix product for each point: channels in, channels out
    back      A^T x, then A    m lines, then m columns of each tile

Two sums of `a` terms stand for one of a^2 (`winograd.py`), and the transformed weight [a, a, *K, CI, CO] lies as a
product reads it.  Axes before the image (the depth of a volume) belong to the products.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...computation.access import CONST_INDICES
from ...computation.tensor import Tensor, compute
from ...errors import ExprError, require
from ...expr import reduction
from ...expr.expr import Expr
from .pad import pad
from .winograd import Matrix, const_matrix, winograd_transform_matrices

TAG = "conv_winograd_by_axis"


def conv_winograd_by_axis(data: Tensor, weight: Tensor, padding: Sequence[int], tile_size: int) -> Tensor:
    """A convolution of stride 1 of `data` [N, *D, H, W, CI] with `weight` [*K, 3, 3, CI, CO]: [N, *D', H', W', CO].

    `padding` is that of both sides of D, H and W; a tile is `tile_size` (2, 4, 5, 6) outputs along H and along W.
    Raises ExprError for other weights and tiles.
    """
    ok = data.ndim >= 4 and data.ndim == weight.ndim and weight.shape[-4:-1] == (3, 3, data.shape[-1])
    law = "the weight must be [*K, 3, 3, CI, CO], and there must be a padding for each axis between N and CI"
    require(ok and len(padding) == data.ndim - 2, ExprError, "winograd by axis", law,
            data=data.shape, weight=weight.shape, padding=tuple(padding))  # fmt: skip
    m, (a, b, g) = tile_size, winograd_transform_matrices(tile_size)
    batch, *sizes, _ = data.shape
    *depths, height, width = [s + 2 * p - k + 1 for s, p, k in zip(sizes, padding, weight.shape, strict=False)]
    over = (*[0] * len(depths), -height % m, -width % m)
    padded = pad(data, (0, *padding, 0), (0, *[p + o for p, o in zip(padding, over, strict=True)], 0), name="data_pad")
    tiles = _back(_products(_points(padded, b, m), _weight_points(weight, g), depths), a)
    return compute(
        (batch, *depths, height, width, weight.shape[-1]),
        lambda n, *i: tiles[[i[-3] % m, i[-2] % m, n, *i[:-3], i[-3] // m, i[-2] // m, i[-1]]],
        name="conv_winograd",
        tag=TAG,
    )


def _points(padded: Tensor, b: Matrix, m: int) -> Tensor:
    """[a, a, N, *D, nh, nw, CI]: `B^T d B` for every tile and channel."""
    matrix, alpha = const_matrix(b, padded.dtype, "B"), m + 2
    batch, *depths, height, width, channels = padded.shape
    r, s = reduction.reduce_axis((0, alpha), "r"), reduction.reduce_axis((0, alpha), "s")
    rows = compute(
        (alpha, batch, *depths, (height - 2) // m, width, channels),
        lambda eps, n, *i: reduction.sum(padded[[n, *i[:-3], i[-3] * m + r, *i[-2:]]] * matrix[r, eps], axis=[r]),
        name="data_rows",
        attrs={CONST_INDICES: ["eps", "r"]},
    )
    return compute(
        (alpha, *rows.shape[:-2], (width - 2) // m, channels),
        lambda eps, nu, *i: reduction.sum(rows[[eps, *i[:-2], i[-2] * m + s, i[-1]]] * matrix[s, nu], axis=[s]),
        name="data_points",
        attrs={CONST_INDICES: ["nu", "s"]},
    )


def _weight_points(weight: Tensor, g: Matrix) -> Tensor:
    """[a, a, *K, CI, CO]: `G g G^T` for every pair of channels."""
    matrix, alpha = const_matrix(g, weight.dtype, "G"), len(g)
    *window, _, _, channels, filters = weight.shape
    r, s = reduction.reduce_axis((0, 3), "r"), reduction.reduce_axis((0, 3), "s")
    rows = compute(
        (alpha, *window, 3, channels, filters),
        lambda eps, *i: reduction.sum(weight[[*i[:-3], r, *i[-3:]]] * matrix[eps, r], axis=[r]),
        name="weight_rows",
        attrs={CONST_INDICES: ["eps", "r"]},
    )
    return compute(
        (alpha, alpha, *window, channels, filters),
        lambda eps, nu, *i: reduction.sum(rows[[eps, *i[:-2], s, *i[-2:]]] * matrix[nu, s], axis=[s]),
        name="weight_points",
        attrs={CONST_INDICES: ["nu", "s"]},
    )


def _products(points: Tensor, weight: Tensor, depths: Sequence[int]) -> Tensor:
    """[a, a, N, *D', nh, nw, CO]: at each point the sum over channels, and over the windows of the axes D."""
    alpha, _, batch, *_, nh, nw, channels = points.shape
    deep = len(depths)
    window = [reduction.reduce_axis((0, k), f"k{n}") for n, k in enumerate(weight.shape[2:-2])]
    ci = reduction.reduce_axis((0, channels), "ci")

    def element(eps: Expr, nu: Expr, n: Expr, *i: Expr) -> Expr:
        moved = [d + k for d, k in zip(i[:deep], window, strict=True)]
        factor = points[[eps, nu, n, *moved, *i[deep:-1], ci]]
        return reduction.sum(factor * weight[[eps, nu, *window, ci, i[-1]]], axis=[*window, ci])

    return compute((alpha, alpha, batch, *depths, nh, nw, weight.shape[-1]), element, name="products")


def _back(products: Tensor, a: Matrix) -> Tensor:
    """[m, m, N, *D', nh, nw, CO]: `A^T x A` for every tile and filter."""
    matrix, m = const_matrix(a, products.dtype, "A"), len(a[0])
    r, s = reduction.reduce_axis((0, len(a)), "r"), reduction.reduce_axis((0, len(a)), "s")
    rows = compute(
        (m, *products.shape[1:]),
        lambda vh, *i: reduction.sum(products[[r, *i]] * matrix[r, vh], axis=[r]),
        name="output_rows",
        attrs={CONST_INDICES: ["vh", "r"]},
    )
    return compute(
        (m, m, *products.shape[2:]),
        lambda vh, vw, *i: reduction.sum(rows[[vh, s, *i]] * matrix[s, vw], axis=[s]),
        name="output_tiles",
        attrs={CONST_INDICES: ["vw", "s"]},
    )
