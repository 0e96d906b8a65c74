"""Chapter 4, 20 minutes: an oracle that shares no code.

A schedule is tested against something that was written independently of it. Write a convolution in plain NumPy:
`data` is (channels, height, width), `kernel` (filters, channels, kh, kw); zeros are padded on all four sides; as in
neural networks, the kernel is not mirrored. Loops over the taps of the kernel are fine, loops over pixels are slow.
"""

import numpy as np


def conv2d(data, kernel, stride, padding):
    ...
    return ...
