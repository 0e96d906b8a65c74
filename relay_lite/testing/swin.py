"""Swin transformers: attention inside windows, which every second layer shifts (Liu et al., 2021, 2103.14030)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Array, Expr, Function, const
from ..ir.visit import free_vars
from ..op.binary import add
from ..op.join import concatenate
from ..op.pick import strided_slice
from ..op.reduce import mean
from ..op.shape import reshape, transpose
from . import layers
from .init import workload_of
from .transformer import Shape, pre_norm_layer, self_attention
from .vit import patches

PATCH = 4
MASKED = -100.0
"""What is added to the score of two tokens that are in one window only because the image was shifted."""
TINY_DEPTHS, TINY_HEADS = (2, 2, 6, 2), (3, 6, 12, 24)


@dataclass(frozen=True)
class Windows:
    """A batch of images of `height` x `width` tokens, cut into windows of `size` x `size` behind a shift."""

    batch: int
    height: int
    width: int
    size: int
    shift: int

    @property
    def count(self) -> int:
        """Windows of one image."""
        return self.height * self.width // self.size**2

    def cut(self, data: Expr) -> Expr:
        """`[batch * height * width, hidden]`, image by image, as the same window by window."""
        body: Expr = reshape(data, newshape=(self.batch, self.height, self.width, data.shape[-1]))
        body = rolled(body, self.shift)
        body = reshape(body, newshape=(self.batch, *self._parts, data.shape[-1]))
        return reshape(transpose(body, axes=(0, 1, 3, 2, 4, 5)), newshape=data.shape)

    def joined(self, data: Expr) -> Expr:
        """`cut`, backwards."""
        rows, size, columns, _ = self._parts
        body = reshape(data, newshape=(self.batch, rows, columns, size, size, data.shape[-1]))
        body = transpose(body, axes=(0, 1, 3, 2, 4, 5))
        body = reshape(body, newshape=(self.batch, self.height, self.width, data.shape[-1]))
        return reshape(rolled(body, -self.shift), newshape=data.shape)

    @property
    def _parts(self) -> tuple[int, int, int, int]:
        return self.height // self.size, self.size, self.width // self.size, self.size

    def places(self) -> Array:
        """For two tokens of a window the row of the table of biases, their distance: int `[size^2, size^2]`."""
        row, column = np.divmod(np.arange(self.size**2), self.size)
        down, right = row[:, None] - row[None, :], column[:, None] - column[None, :]
        return np.asarray((down + self.size - 1) * (2 * self.size - 1) + right + self.size - 1)

    def mask(self) -> Array:
        """0, or `MASKED` where the shift put two tokens of far places side by side: `[count, size^2, size^2]`."""
        region = np.add.outer(self._bands(self.height) * 3, self._bands(self.width))
        windows = region.reshape(self._parts).transpose(0, 2, 1, 3).reshape(self.count, self.size**2)
        return np.where(windows[:, :, None] == windows[:, None, :], 0.0, MASKED)

    def _bands(self, extent: int) -> Array:
        """What of an axis came from the front (2), is in the last window (1), and the rest (0)."""
        place = np.arange(extent)
        return (place >= extent - self.size).astype(int) + (place >= extent - self.shift)


def get_net(
    batch_size: int = 1,
    num_classes: int = 1000,
    image_shape: tuple[int, ...] = (3, 224, 224),
    dtype: str = "float32",
    layout: str = "NCHW",
    hidden: int = 96,
    depths: Sequence[int] = TINY_DEPTHS,
    heads: Sequence[int] = TINY_HEADS,
    window: int = 7,
) -> Function:
    """The network as a function of `data` and its parameters; the result is `[batch_size, num_classes]`, no softmax.

    `image_shape` follows the layout.  `hidden` is that of the first stage; each later stage halves the image and
    doubles it.  Raises GraphError unless all stages consist of whole windows.
    """
    data = layers.image_input(batch_size, image_shape, layout, dtype)
    height, width = (data.shape[layout.index(letter)] // PATCH for letter in "HW")
    unit = PATCH * window << (len(depths) - 1)
    whole = all(data.shape[layout.index(letter)] % unit == 0 for letter in "HW")
    require(whole, GraphError, "swin", f"the sides of an image must be multiples of {unit}", image_shape=image_shape)
    body: Expr = reshape(patches(data, PATCH, hidden, layout), newshape=(-1, hidden))
    body = layers.layer_norm(body, "patch_norm")
    for stage, (count, parts) in enumerate(zip(depths, heads, strict=True), 1):
        if stage > 1:
            body = _merged(body, f"merge{stage}", (batch_size, height, width))
            height, width = height // 2, width // 2
        for index in range(count):
            shift = window // 2 if index % 2 and window < min(height, width) else 0
            windows = Windows(batch_size, height, width, window, shift)
            body = _layer(body, f"stage{stage}_layer{index}", windows, parts)
    body = reshape(layers.layer_norm(body, "norm"), newshape=(batch_size, height * width, -1))
    body = layers.dense_add_bias(mean(body, axis=1), num_classes, "head")
    return Function(free_vars(body), body)


get_workload = workload_of(get_net)


def rolled(data: Expr, shift: int) -> Expr:
    """`[batch, height, width, hidden]` moved by `shift` towards the front of both axes, around the border."""
    if shift:
        for axis in (1, 2):
            extent = data.shape[axis]
            at = shift % extent
            front, rest = (strided_slice(data, (a,), (b,), axes=(axis,)) for a, b in ((0, at), (at, extent)))
            data = concatenate((rest, front), axis=axis)
    return data


def _layer(data: Expr, name: str, windows: Windows, heads: int) -> Expr:
    """Attention in windows, then a feed-forward net."""
    hidden = data.shape[-1]
    shape = Shape(windows.batch * windows.count, windows.size**2, hidden, heads)
    bias = _bias(name, windows, heads, data.dtype)

    def attend(normed: Expr) -> Expr:
        return windows.joined(self_attention(windows.cut(normed), name, shape, bias))

    return pre_norm_layer(data, name, attend, 4 * hidden)


def _bias(name: str, windows: Windows, heads: int, dtype: str) -> Expr:
    """What is added to scores for the places of the two tokens: `[1, heads, ...]`, or one for each window and head."""
    tokens = windows.size**2
    places = const(windows.places().reshape(-1), "int32")
    rows = layers.embedding(places, f"{name}_place", (2 * windows.size - 1) ** 2, heads, dtype)
    bias: Expr = transpose(reshape(rows, newshape=(1, tokens, tokens, heads)), axes=(0, 3, 1, 2))
    if windows.shift:
        mask = const(windows.mask().reshape(windows.count, 1, tokens, tokens), dtype)
        bias = reshape(add(bias, mask), newshape=(1, windows.count * heads, tokens, tokens))
    return bias


def _merged(data: Expr, name: str, size: tuple[int, int, int]) -> Expr:
    """Four neighbouring tokens become one, twice as wide; `size` is batch, height and width in front of it."""
    image = reshape(data, newshape=(*size, data.shape[-1]))
    corners = [strided_slice(image, (j, i), size[1:], (2, 2), axes=(1, 2)) for i in (0, 1) for j in (0, 1)]
    body = reshape(concatenate(corners, axis=3), newshape=(-1, 4 * data.shape[-1]))
    return layers.dense(layers.layer_norm(body, f"{name}_norm"), 2 * data.shape[-1], name)
