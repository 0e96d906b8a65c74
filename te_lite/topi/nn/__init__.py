"""Operators of neural networks, with the names and arguments of TVM's `topi.nn`.

In reading order:

    windows             utils, pad, conv, depthwise_conv2d, conv_transpose, pooling
    by Winograd         winograd, winograd_by_axis
    the rest            dense, elemwise, wide, softmax, norm, block
"""

from .block import depth_to_space, space_to_depth
from .conv import (
    conv,
    conv1d,
    conv1d_ncw,
    conv1d_nwc,
    conv2d,
    conv2d_hwcn,
    conv2d_nchw,
    conv2d_nhwc,
    conv3d_ncdhw,
    conv3d_ndhwc,
    group_conv1d_ncw,
    group_conv1d_nwc,
    group_conv2d_nchw,
    group_conv2d_nhwc,
)
from .conv_transpose import conv1d_transpose_ncw, conv2d_transpose_nchw, conv3d_transpose_ncdhw
from .dense import batch_matmul, dense, matmul
from .depthwise_conv2d import depthwise_conv2d_nchw, depthwise_conv2d_nhwc
from .elemwise import bias_add, flatten, leaky_relu, prelu, relu, scale_shift_nchw, scale_shift_nhwc
from .norm import batch_norm, instance_norm, layer_norm, lrn, rms_norm
from .pad import dilate, pad, pad_sides
from .pooling import (
    adaptive_pool,
    adaptive_pool1d,
    adaptive_pool3d,
    global_pool,
    pool1d,
    pool2d,
    pool3d,
)
from .softmax import log_softmax, softmax
from .utils import get_pad_tuple, get_pad_tuple1d, get_pad_tuple3d, get_pad_tuple_generic
from .winograd import (
    const_matrix,
    conv2d_winograd_nhwc,
    conv2d_winograd_nhwc_without_weight_transform,
    conv2d_winograd_weight_transform,
    infer_tile_size,
    winograd_transform_matrices,
)
from .winograd_by_axis import conv_winograd_by_axis

__all__ = [
    "adaptive_pool", "adaptive_pool1d", "adaptive_pool3d", "batch_matmul", "batch_norm", "bias_add", "const_matrix",
    "conv", "conv1d", "conv1d_ncw", "conv1d_nwc", "conv1d_transpose_ncw", "conv2d", "conv2d_hwcn", "conv2d_nchw",
    "conv2d_nhwc", "conv2d_transpose_nchw", "conv2d_winograd_nhwc", "conv2d_winograd_nhwc_without_weight_transform",
    "conv2d_winograd_weight_transform", "conv3d_ncdhw", "conv3d_ndhwc", "conv3d_transpose_ncdhw",
    "conv_winograd_by_axis", "dense", "depth_to_space",
    "depthwise_conv2d_nchw", "depthwise_conv2d_nhwc", "dilate", "flatten", "get_pad_tuple",
    "get_pad_tuple1d", "get_pad_tuple3d", "get_pad_tuple_generic", "global_pool", "group_conv1d_ncw",
    "group_conv1d_nwc", "group_conv2d_nchw", "group_conv2d_nhwc", "infer_tile_size", "instance_norm", "layer_norm",
    "leaky_relu", "log_softmax", "lrn", "matmul", "pad", "pad_sides", "pool1d", "pool2d", "pool3d", "prelu", "relu",
    "rms_norm", "scale_shift_nchw", "scale_shift_nhwc", "softmax", "space_to_depth", "winograd_transform_matrices",
]  # fmt: skip
