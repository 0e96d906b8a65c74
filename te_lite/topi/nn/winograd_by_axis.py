"""Winograd convolution for processors: one axis is transformed after the other, and channels are last throughout.

    rows      B^T d            tiles of m + 2 lines, of every column of the image
    points    (B^T d) B        tiles of m + 2 columns of these
    products  points x weight  a matrix product for each point: channels in, channels out
    back      A^T x, then A    m lines, then m columns of each tile

Two sums of `a` terms stand for one of a^2 (`winograd.py`), and the transformed weight [a, a, *K, CI, CO] lies as a
product reads it.  Axes before the image (the depth of a volume) belong to the products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...computation.access import CONST_INDICES
from ...computation.tensor import Tensor, compute
from ...errors import ExprError, require
from ...expr import reduction
from ...expr.expr import Expr
from .pad import pad
from .winograd import Matrix, const_matrix, winograd_transform_matrices

TAG = "conv_winograd_by_axis"


def conv_winograd_by_axis(
    data: Tensor, weight: Tensor, padding: Sequence[int], tile_size: int, transformed: bool = False
) -> Tensor:
    """A convolution of stride 1 of `data` [N, *D, H, W, CI] with `weight` [*K, 3, 3, CI, CO]: [N, *D', H', W', CO].

    `padding` is that of both sides of D, H and W, or of all sides before and then of those after; a tile is `tile_size`
    (2, 4, 5, 6) outputs along H and along W.  A weight that is `transformed` already is [a, a, CO, CI], that of an
    image, and may be stored in any order.  Raises ExprError for other weights and tiles.
    """
    m, n, (a, b, g) = tile_size, data.ndim - 2, winograd_transform_matrices(tile_size)
    window = (3, 3) if transformed else weight.shape[:-2]
    ends = (m + 2, m + 2, weight.shape[-2], data.shape[-1]) if transformed else (3, 3, data.shape[-1], weight.shape[-1])
    law = "the weight must be [*K, 3, 3, CI, CO], or [a, a, CO, CI], and there must be a padding for D, H and W"
    ok = n == len(window) >= 2 and weight.shape[-4:] == ends and len(padding) in (n, 2 * n)
    require(ok, ExprError, "winograd by axis", law, data=data.shape, weight=weight.shape, padding=tuple(padding))
    batch, *sizes, _ = data.shape
    sides = zip(sizes, padding[:n], padding[-n:], window, strict=True)
    *depths, height, width = [s + p + q - k + 1 for s, p, q, k in sides]
    over = (*[0] * len(depths), -height % m, -width % m)
    after = [p + o for p, o in zip(padding[-n:], over, strict=True)]
    padded = pad(data, (0, *padding[:n], 0), (0, *after, 0), name="data_pad")
    points = weight if transformed else _weight_points(weight, g)
    tiles = _back(_products(_points(padded, b, m), points, depths, transformed), a)
    return compute(
        (batch, *depths, height, width, tiles.shape[-1]),
        lambda n, *i: tiles[[i[-3] % m, i[-2] % m, n, *i[:-3], i[-3] // m, i[-2] // m, i[-1]]],
        name="conv_winograd",
        tag=TAG,
    )


def _transformed(shape: Sequence[int], name: str, axis: int, length: int, term: Callable[..., Expr]) -> Tensor:
    """The sums of `term(r, *indices)` over r; that and axis number `axis` are the indices of a constant matrix."""
    r = reduction.reduce_axis((0, length), "r")
    attrs = {CONST_INDICES: [f"i{axis}", "r"]}
    return compute(shape, lambda *i: reduction.sum(term(r, *i), axis=[r]), name=name, attrs=attrs)


def _points(padded: Tensor, b: Matrix, m: int) -> Tensor:
    """[a, a, N, *D, nh, nw, CI]: `B^T d B` for every tile and channel."""
    matrix, alpha = const_matrix(b, padded.dtype, "B"), m + 2
    batch, *depths, height, width, channels = padded.shape
    rows = _transformed(
        (alpha, batch, *depths, (height - 2) // m, width, channels), "data_rows", 0, alpha,
        lambda r, eps, n, *i: padded[[n, *i[:-3], i[-3] * m + r, *i[-2:]]] * matrix[r, eps],
    )  # fmt: skip
    return _transformed(
        (alpha, *rows.shape[:-2], (width - 2) // m, channels), "data_points", 1, alpha,
        lambda s, eps, nu, *i: rows[[eps, *i[:-2], i[-2] * m + s, i[-1]]] * matrix[s, nu],
    )  # fmt: skip


def _weight_points(weight: Tensor, g: Matrix) -> Tensor:
    """[a, a, *K, CI, CO]: `G g G^T` for every pair of channels."""
    matrix, alpha = const_matrix(g, weight.dtype, "G"), len(g)
    *window, _, _, channels, filters = weight.shape
    rows = _transformed((alpha, *window, 3, channels, filters), "weight_rows", 0, 3,
                        lambda r, eps, *i: weight[[*i[:-3], r, *i[-3:]]] * matrix[eps, r])  # fmt: skip
    return _transformed((alpha, alpha, *window, channels, filters), "weight_points", 1, 3,
                        lambda s, eps, nu, *i: rows[[eps, *i[:-2], s, *i[-2:]]] * matrix[nu, s])  # fmt: skip


def _products(points: Tensor, weight: Tensor, depths: Sequence[int], given: bool) -> Tensor:
    """[a, a, N, *D', nh, nw, CO]: at each point the sum over channels, and over the windows of the axes D.

    The points of a weight that is `given` are those of an image, by filter and channel.
    """
    alpha, _, batch, *_, nh, nw, channels = points.shape
    deep, filters = len(depths), weight.shape[2 if given else -1]
    window = [reduction.reduce_axis((0, k), f"k{n}") for n, k in enumerate(weight.shape[2:-2])]
    ci = reduction.reduce_axis((0, channels), "ci")

    def element(eps: Expr, nu: Expr, n: Expr, *i: Expr) -> Expr:
        moved = [d + k for d, k in zip(i[:deep], window, strict=True)]
        factor = points[[eps, nu, n, *moved, *i[deep:-1], ci]]
        last = (i[-1], ci) if given else (ci, i[-1])
        return reduction.sum(factor * weight[[eps, nu, *window, *last]], axis=[*window, ci])

    attrs = {"layout_free_placeholders": [weight]} if given else {}
    return compute((alpha, alpha, batch, *depths, nh, nw, filters), element, name="products", attrs=attrs)


def _back(products: Tensor, a: Matrix) -> Tensor:
    """[m, m, N, *D', nh, nw, CO]: `A^T x A` for every tile and filter."""
    matrix, m, alpha = const_matrix(a, products.dtype, "A"), len(a[0]), len(a)
    rows = _transformed((m, *products.shape[1:]), "output_rows", 0, alpha,
                        lambda r, vh, *i: products[[r, *i]] * matrix[r, vh])  # fmt: skip
    return _transformed((m, m, *products.shape[2:]), "output_tiles", 1, alpha,
                        lambda s, vh, vw, *i: rows[[vh, s, *i]] * matrix[s, vw])  # fmt: skip
