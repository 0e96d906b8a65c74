"""The generator of DCGAN: a random code in, a picture out (Radford et al., 2015, arXiv 1511.06434)."""

from __future__ import annotations

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.make import var
from ..ir.nodes import Expr, Function
from ..ir.visit import free_vars
from ..op import nn
from ..op.elementwise import tanh
from ..op.shape import reshape
from . import layers
from .init import Workload, create_workload

_KERNEL, _STRIDE, _PAD = 4, 2, 1
_LAYOUTS = ("NCHW", "NHWC")


def get_net(
    batch_size: int,
    random_len: int = 100,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Function:
    """The network as a function of `data` `[batch_size, random_len]` and its parameters.

    The result is a picture `[batch_size, *oshape]` with values from -1 to 1; `oshape` follows the layout and its sides
    are multiples of 16; `ngf` is the number of channels of the last but one layer.
    """
    require(layout in _LAYOUTS, GraphError, "dcgan", f"layouts are {', '.join(_LAYOUTS)}", layout=layout)
    height, width, channels = (oshape[layout.index(axis) - 1] for axis in "HWC")
    good = height > 0 and width > 0 and height % 16 == width % 16 == 0
    require(good, GraphError, "dcgan", f"the sides of the picture {layout[1:]} are multiples of 16", oshape=oshape)
    start = {"N": -1, "C": ngf * 8, "H": height // 16, "W": width // 16}
    data = var("data", shape=(batch_size, random_len), dtype=dtype)
    body: Expr = nn.relu(layers.dense(data, start["C"] * start["H"] * start["W"], "dense"))
    body = reshape(body, newshape=tuple(start[axis] for axis in layout))
    for name, filters in (("g2", ngf * 4), ("g3", ngf * 2), ("g4", ngf)):
        body = _deconvolution(body, f"{name}_deconv", filters, layout)
        norm = layers.batch_norm_infer(
            body, f"{name}_batch_norm", axis=layout.index("C"), epsilon=1e-5 + 1e-12, scale=False
        )
        body = nn.relu(norm)
    body = tanh(_deconvolution(body, "g5_deconv", channels, layout))
    return Function(free_vars(body), body)


def get_workload(
    batch_size: int,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    random_len: int = 100,
    layout: str = "NCHW",
    dtype: str = "float32",
) -> Workload:
    """The network of `get_net` as a module, and its parameters."""
    return create_workload(get_net(batch_size, random_len, oshape, ngf, layout, dtype))


def _deconvolution(data: Expr, name: str, filters: int, layout: str) -> Expr:
    """A transposed convolution that doubles the sides."""
    square = (_KERNEL, _KERNEL)
    return layers.conv2d_transpose(data, name, filters, square, (_STRIDE,) * 2, (_PAD,) * 2, data_layout=layout)
