"""Offsets in an arena: no two tensors that live at once share a byte, and the arena is nearly as small as it can be."""

from types import ModuleType

import numpy as np

from ..core.verdict import function, need

HINT = """Take the tensors in some order (large ones first), and put each into the lowest gap that is free in all its
time: look at those placed already whose times meet (f <= last and first <= l), sorted by their offsets."""
Request = tuple[int, int, int]


def network(rng: np.random.Generator, kernels: int) -> list[Request]:
    """Most tensors are read by the next kernel, some by a later one: shortcuts."""
    ahead = np.where(rng.random(kernels) < 0.7, 1, rng.integers(1, 9, kernels))
    sizes = (2.0 ** rng.uniform(8, 18, kernels)).astype(int)
    return [(int(s), k, min(k + int(a), kernels)) for k, (s, a) in enumerate(zip(sizes, ahead, strict=True))]


def least(requests: list[Request]) -> int:
    """What lives at once at the worst moment, in bytes."""
    return max(sum(s for s, f, last in requests if f <= k <= last) for k in range(len(requests) + 1))


def check(answer: ModuleType) -> None:
    """Two tensors by hand, then networks."""
    plan = function(answer, "plan")
    rng = np.random.default_rng(16)
    cases: list[list[Request]] = [[(100, 0, 1), (100, 1, 2)]]
    cases += [network(rng, n) for n in (20, 60, 60, 120)]
    for requests in cases:
        offsets = list(plan(list(requests)))
        need(len(offsets) == len(requests), f"{len(requests)} tensors need as many offsets, you give {len(offsets)}")
        need(min(offsets) >= 0, "an offset is negative")
        odd = [o for o in offsets if o % 64]
        need(not odd, f"offset {odd[:1]} is no multiple of 64: round the end of the neighbour up")
        placed = list(zip(offsets, requests, strict=True))
        for i, (a, (size, first, last)) in enumerate(placed):
            for b, (other, f, at_last) in placed[:i]:
                apart = a + size <= b or b + other <= a
                together = f <= last and first <= at_last
                edge = (
                    " (the kernel that reads one writes the other)"
                    if together and max(f, first) == min(last, at_last)
                    else ""
                )
                need(apart or not together, f"two tensors that live at the same time share memory{edge}")
        arena, bound = max(o + s for o, (s, _, _) in placed), least(requests)
        shared = len(requests) > 2 and arena >= sum(s for s, _, _ in requests)
        need(not shared, f"{arena} bytes: every tensor has a place of its own, and {bound} live at once at the most")
        need(arena <= 1.35 * bound + 64 * len(requests), f"{arena} bytes, where {bound} live at once: look for gaps")
