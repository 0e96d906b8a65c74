"""Packed layouts: channels and batch in blocks of the size of an element of the machine.

Data of shape (N, C, H, W) become `NCHW1n16c`, (N / 1, C / 16, H, W, 1, 16); weights (O, I, KH, KW) become
`OIHW16o16i`, (O / 16, I / 16, KH, KW, 16, 16).  Channels that do not fill a block are followed by zeros.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import relay_lite as relay
from relay_lite.ir.errors import GraphError
from relay_lite.ir.nodes import Array, Expr
from te_lite.errors import require

TO_PACKED = (0, 2, 4, 5, 1, 3)
TO_PLAIN = (0, 4, 1, 5, 2, 3)


@dataclass(frozen=True)
class Blocks:
    """How many images and how many channels an element holds."""

    batch: int
    channels: int

    @property
    def data_layout(self) -> str:
        """Such as `NCHW1n16c`."""
        return f"NCHW{self.batch}n{self.channels}c"

    @property
    def kernel_layout(self) -> str:
        """Such as `OIHW16o16i`."""
        return f"OIHW{self.channels}o{self.channels}i"

    def rounded(self, channels: int) -> int:
        """`channels`, rounded up to whole blocks."""
        return -(-channels // self.channels) * self.channels

    def pack(self, data: Expr) -> Expr:
        """(N, C, H, W), or (N, C) as single pixels, as blocks.  Raises GraphError unless N and C are whole blocks."""
        if len(data.shape) == 2:
            data = relay.reshape(data, (*data.shape, 1, 1))
        n, c, h, w = data.shape if len(data.shape) == 4 else (0, 0, 0, 0)
        whole = n > 0 and n % self.batch == 0 and c % self.channels == 0
        law = f"batch and channels must be multiples of {self.batch} and {self.channels}, in four dimensions"
        require(whole, GraphError, "graph_pack", law, shape=data.shape)
        split = (n // self.batch, self.batch, c // self.channels, self.channels, h, w)
        return relay.transpose(relay.reshape(data, split), TO_PACKED)

    def unpack(self, data: Expr, shape: tuple[int, ...]) -> Expr:
        """Blocks as `shape`: (N, C, H, W), or (N, C) of single pixels; channels beyond C are left out."""
        n, c, h, w, b, k = data.shape
        plain = relay.reshape(relay.transpose(data, TO_PLAIN), (n * b, c * k, h, w))
        if c * k != shape[1]:
            plain = relay.strided_slice(plain, (0, 0, 0, 0), (n * b, shape[1], h, w))
        return plain if len(shape) == 4 else relay.reshape(plain, shape)

    def pack_weight(self, weight: Array) -> Array:
        """(O, I, KH, KW) as blocks, both channels padded with zeros."""
        o, i, kh, kw = weight.shape
        padded = np.zeros((self.rounded(o), self.rounded(i), kh, kw), weight.dtype)
        padded[:o, :i] = weight
        k = self.channels
        return np.ascontiguousarray(padded.reshape(-1, k, self.rounded(i) // k, k, kh, kw).transpose(0, 2, 4, 5, 1, 3))

    def pack_channels(self, values: Array) -> Array:
        """One number for each channel, as what broadcasts over packed data: (1, C / 16, 1, 1, 1, 16)."""
        padded = np.zeros(self.rounded(values.size), values.dtype)
        padded[: values.size] = values.reshape(-1)
        shaped = padded.reshape(1, -1, 1, 1, 1, self.channels)
        return np.repeat(shaped, self.batch, axis=4)
