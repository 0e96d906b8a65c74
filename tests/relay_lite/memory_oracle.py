"""What a memory plan must keep to: nothing shared at one time, no less than what lives at one step."""

from __future__ import annotations

from collections.abc import Sequence

from relay_lite.runtime.memory import Request


def collisions(requests: Sequence[Request], offsets: Sequence[int]) -> list[tuple[int, int]]:
    """The pairs of requests that live at the same time and share bytes: none in a sound plan."""
    return [
        (j, k)
        for k in range(len(requests))
        for j in range(k)
        if requests[j].meets(requests[k])
        and offsets[j] < offsets[k] + requests[k].nbytes
        and offsets[k] < offsets[j] + requests[j].nbytes
    ]


def peak_bytes(requests: Sequence[Request]) -> int:
    """The most bytes that live at one step: no plan needs less."""
    steps = {r.first for r in requests}
    return max((sum(r.nbytes for r in requests if r.first <= s <= r.last) for s in steps), default=0)
