"""The forms of operators that front ends use for CUDA targets.

In reading order:

    convolutions        conv_transpose
"""

from .conv_transpose import conv2d_transpose_nchw

__all__ = ["conv2d_transpose_nchw"]
