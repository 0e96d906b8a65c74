"""The forms of operators that front ends use for CUDA targets."""

from .conv_transpose import conv2d_transpose_nchw

__all__ = ["conv2d_transpose_nchw"]
