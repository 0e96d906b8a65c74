"""What convolutions say of each spatial axis, for passes that look at one axis after the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from ..ir.make import call
from ..ir.nodes import Call
from ..op.conv import window_attrs
from ..op.window import repeated


@dataclass(frozen=True)
class ConvAxis:
    """An axis of images: extents of data, kernel and result, stride, dilation, and what is padded (or cut) before."""

    size: int
    kernel: int
    out: int
    stride: int
    dilation: int
    before: int


A = TypeVar("A", bound=ConvAxis)


def spelled_out(node: Call, n: int) -> Call:
    """A convolution or pool with an attribute for each of `n` axes and side, where one number may stand for all."""
    what, attrs = node.op.name, node.attrs
    window = window_attrs(n, what, attrs["strides"], attrs["padding"], attrs["dilation"])
    if "output_padding" in attrs:
        window["output_padding"] = repeated(attrs["output_padding"], n, what)
    return call(what, *node.args, **{**attrs, **window})


def axes_of(conv: Call, n: int, kind: Callable[[int, int, int, int, int, int], A]) -> list[A]:
    """The axes of a convolution that is spelled out, with channels first."""
    (data, weight), attrs = conv.args, conv.attrs
    extents = data.shape[2:], weight.shape[2:], conv.shape[2:]
    return [kind(*one) for one in zip(*extents, attrs["strides"], attrs["dilation"], attrs["padding"][:n], strict=True)]
