"""The operators and layers whose speed is reported, each as the list of its inputs and outputs."""

from ansor.core.tasks.catalog import matmul
from ansor.core.tasks.catalog_operators import (
    Tensors,
    batch_matmul,
    conv1d,
    conv2d,
    conv3d,
    depthwise_conv2d,
    norm,
    softmax,
)

from .layers import (
    WORKLOADS,
    conv2d_layer,
    conv2d_winograd_nhwc,
    dense,
    double_matmul,
    global_avg_pool,
    max_pool2d,
    relu,
)
from .operators import OPERATORS, SHAPES, conv2d_bn_relu, conv2d_capsule, conv2d_transpose, transpose_batch_matmul

__all__ = [
    "OPERATORS",
    "SHAPES",
    "WORKLOADS",
    "Tensors",
    "batch_matmul",
    "conv1d",
    "conv2d",
    "conv2d_bn_relu",
    "conv2d_capsule",
    "conv2d_layer",
    "conv2d_transpose",
    "conv2d_winograd_nhwc",
    "conv3d",
    "dense",
    "depthwise_conv2d",
    "double_matmul",
    "global_avg_pool",
    "matmul",
    "max_pool2d",
    "norm",
    "relu",
    "softmax",
    "transpose_batch_matmul",
]
