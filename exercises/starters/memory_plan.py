"""Chapter 10, 30 minutes: one arena for all tensors in between.

A network runs its kernels in order. Tensor t is written by kernel `first` and read for the last time by kernel `last`,
so it needs `size` bytes from the one to the other, both included; two tensors that never live at the same time may lie
in the same place. `plan` gets a list of (size, first, last) and gives an offset for each, a multiple of 64. The arena,
as long as the highest end, must not be more than 35 percent larger than what lives at once at the worst moment.
"""


def plan(requests):
    offsets, end = [], 0
    for size, first, last in requests:
        offsets.append(end)  # a place of its own for each: no one shares ...
        end += -(-size // 64) * 64
    return offsets
