"""Chapter 3, 15 minutes: the region that a stage must cover.

A convolution reads padded[y * stride + r * dilation] for r = 0 ... taps - 1. A tile computes the outputs
first ... first + count - 1 and has a copy of just those inputs that it reads, from the first to the last of them. Say
where the copy begins and how many elements it has; this is what bound inference works out for a `compute_at`.
"""


def region(first, count, stride, taps, dilation):
    begin = ...
    extent = ...
    return begin, extent
