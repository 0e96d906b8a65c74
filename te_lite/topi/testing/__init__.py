"""What the operators compute, written directly in NumPy; the names of TVM's `topi.testing`.

In reading order:

    NumPy               convolution, other
"""

from .convolution import (
    conv1d_ncw_python,
    conv1d_nwc_python,
    conv1d_transpose_ncw_python,
    conv2d_hwcn_python,
    conv2d_nchw_python,
    conv2d_nhwc_python,
    conv2d_transpose_nchw_python,
    conv2d_transpose_nhwc_python,
    conv3d_ncdhw_python,
    conv3d_ndhwc_python,
    conv3d_transpose_ncdhw_python,
    depthwise_conv2d_python_nchw,
    depthwise_conv2d_python_nhwc,
    dilate_python,
    group_conv1d_ncw_python,
)
from .other import (
    adaptive_pool,
    batch_matmul,
    batch_norm,
    dense,
    instance_norm_python,
    layer_norm_python,
    log_softmax_python,
    matmul,
    poolnd_python,
    softmax_python,
)

__all__ = [
    "adaptive_pool", "batch_matmul", "batch_norm", "conv1d_ncw_python", "conv1d_nwc_python",
    "conv1d_transpose_ncw_python", "conv2d_hwcn_python", "conv2d_nchw_python", "conv2d_nhwc_python",
    "conv2d_transpose_nchw_python", "conv2d_transpose_nhwc_python", "conv3d_ncdhw_python", "conv3d_ndhwc_python",
    "conv3d_transpose_ncdhw_python", "dense", "depthwise_conv2d_python_nchw", "depthwise_conv2d_python_nhwc",
    "dilate_python", "group_conv1d_ncw_python", "instance_norm_python", "layer_norm_python", "log_softmax_python",
    "matmul", "poolnd_python", "softmax_python",
]  # fmt: skip
