"""The operators of neural networks, by TVM's names: `relay.nn.conv2d(...)`."""

from .binary import bias_add, prelu
from .conv import conv1d, conv2d, conv3d
from .conv_transpose import conv1d_transpose, conv2d_transpose, conv3d_transpose
from .dense import batch_matmul, dense, matmul
from .depth_space import depth_to_space, space_to_depth
from .elementwise import leaky_relu, relu
from .norm import (
    batch_norm,
    dropout,
    dropout_raw,
    group_norm,
    instance_norm,
    l2_normalize,
    layer_norm,
    log_softmax,
    lrn,
    softmax,
)
from .pick import pad
from .pool import (
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    adaptive_max_pool1d,
    adaptive_max_pool2d,
    adaptive_max_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    global_avg_pool1d,
    global_avg_pool2d,
    global_avg_pool3d,
    global_max_pool1d,
    global_max_pool2d,
    global_max_pool3d,
    max_pool1d,
    max_pool2d,
    max_pool3d,
)
from .resize import upsampling
from .shape import batch_flatten
from .winograd import contrib_conv2d_winograd_weight_transform, contrib_conv2d_winograd_without_weight_transform

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d", "adaptive_max_pool2d",
    "adaptive_max_pool3d", "avg_pool1d", "avg_pool2d", "avg_pool3d", "batch_flatten", "batch_matmul", "batch_norm",
    "bias_add", "contrib_conv2d_winograd_weight_transform", "contrib_conv2d_winograd_without_weight_transform",
    "conv1d", "conv1d_transpose", "conv2d", "conv2d_transpose", "conv3d", "conv3d_transpose", "dense",
    "depth_to_space", "dropout", "dropout_raw", "global_avg_pool1d", "global_avg_pool2d", "global_avg_pool3d",
    "global_max_pool1d", "global_max_pool2d", "global_max_pool3d", "group_norm", "instance_norm", "l2_normalize",
    "layer_norm", "leaky_relu", "log_softmax", "lrn", "matmul", "max_pool1d", "max_pool2d", "max_pool3d", "pad",
    "prelu", "relu", "softmax", "space_to_depth", "upsampling",
]  # fmt: skip
