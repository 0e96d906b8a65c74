"""Best-so-far curves of a task, over its trials and over the seconds that the search was at work."""

from __future__ import annotations

from collections.abc import Sequence

PAUSE = 120
"""Seconds: a longer gap between two records is taken for a search that was stopped and continued."""

Points = list[tuple[float, float]]


def active_seconds(timestamps: Sequence[float]) -> list[float]:
    """Seconds of work until each record, by the times of day of them all; pauses and clocks set back count nothing."""
    passed, out = 0.0, []
    for k, now in enumerate(timestamps):
        gap = now - timestamps[k - 1] if k else 0.0
        passed += gap if 0 <= gap <= PAUSE else 0.0
        out.append(passed)
    return out


def steps_of(xs: Sequence[float], curve: Sequence[float | None]) -> Points:
    """The corners of a curve that falls: where it begins, every new best, and its end."""
    known = [(x, y) for x, y in zip(xs, curve, strict=True) if y is not None]
    if not known:
        return []
    corners = [known[0]]
    for x, y in known[1:]:
        if y < corners[-1][1]:
            corners += [(x, corners[-1][1]), (x, y)]
    return corners if corners[-1][0] == known[-1][0] else [*corners, (known[-1][0], corners[-1][1])]
