"""From the first output's first tap to the last output's last tap."""


def region(first, count, stride, taps, dilation):
    begin = first * stride
    extent = (count - 1) * stride + (taps - 1) * dilation + 1
    return begin, extent
