"""The pictures of a report: best so far over trials and seconds, the decisions, the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ..core.measure_values import MeasureResult
from ..measure.progress import outcome_text, seconds_text
from ..space.step_decisions import Decisions
from .curves import Points, active_seconds, steps_of
from .roofline import Roof, Work
from .scale import Scale, spanning
from .svg import Chart, Column, Dot, Line, parallel

LINES = 240
"""Programs that are drawn of one structure: the best of them, and others at equal distances down to the worst."""


def best_so_far(curves: Mapping[str, Points], x_name: str, failures: Sequence[float], goal: float | None) -> str:
    """Curves by name; failed trials are crosses at the bottom, and a dotted line says what `goal` seconds are."""
    points = [p for curve in curves.values() for p in curve]
    if not points:
        return ""
    ys = [y for _, y in points] + ([goal] if goal else [])
    x = Scale(0, max([x for x, _ in points] + [1.0]))
    chart = Chart(x, spanning(ys, True, 1.15), x_name, "best so far", y_text=seconds_text)
    chart.lines = [
        Line(name if len(curves) > 1 else "", curve, k % 4) for k, (name, curve) in enumerate(curves.items())
    ]
    if goal:
        chart.lines.append(Line("untuned", [(x.low, goal), (x.high, goal)], 2))
    chart.dots = [Dot(at, chart.y.low, f"failed: {at:g}", cross=True) for at in failures]
    return chart.svg(f"best time so far over {x_name}")


def curve_points(curve: Sequence[float | None], results: Sequence[MeasureResult]) -> tuple[Points, Points]:
    """The best so far of a task over trials, and over seconds at work."""
    trials = [float(k) for k in range(1, len(curve) + 1)]
    return steps_of(trials, curve), steps_of(active_seconds([res.timestamp for res in results]), curve)


def decision_lines(table: Decisions, results: Sequence[MeasureResult], best_trial: int | None = None) -> str:
    """Parallel coordinates of the programs of a structure; the last axis is the time, failed programs have none.

    Their classes are `best`, `failed`, and `q0` for those of the fastest quarter, to `q3`.  The thick line is the
    program of `best_trial` (from 1), or that of the least time where the structure has it not.
    """
    own = [results[k] for k in table.members]
    costs = [res.cost for res in own if res.ok]
    if not table.names or not costs:
        return ""
    slowest = max(costs) * 1.3
    order = sorted(range(len(own)), key=lambda k: own[k].cost if own[k].ok else slowest, reverse=True)
    kept = order if len(order) <= LINES else [order[k] for k in np.linspace(0, len(order) - 1, LINES).astype(int)]
    best = next((k for k, member in enumerate(table.members) if member + 1 == best_trial), order[-1])
    kept = [*[k for k in kept if k != best], best]
    quarters = np.quantile(costs, (0.25, 0.5, 0.75))
    rows = []
    for k in kept:
        kind = "failed" if not own[k].ok else "best" if k == best else f"q{np.searchsorted(quarters, own[k].cost)}"
        numbers = [*map(float, table.values[k]), own[k].cost if own[k].ok else slowest]
        rows.append((numbers, kind, f"trial {table.members[k] + 1}: {outcome_text(own[k])}"))
    columns = [
        Column(name, spanning(list(map(float, values)), log=bool(values.min() > 0)))
        for name, values in zip(table.names, table.values.T, strict=True)
    ]
    time = Column("time", Scale(min(costs), slowest, True), seconds_text)
    return parallel([*columns, time], rows, "decisions and times")


def roofline(roof: Roof, points: Sequence[tuple[str, Work, float]]) -> str:
    """A machine's roof, and tasks under it: each a name, its work and its seconds."""
    rates = [work.flops / seconds for _, work, seconds in points]
    knee = roof.flops / roof.bandwidth
    x = spanning([*[work.intensity for _, work, _ in points], knee], True, 3)
    y = spanning([*rates, roof.flops], True, 3)
    chart = Chart(x, y, "operations a byte", "operations a second", y_text=rate)
    chart.lines = [Line(f"{roof.name}, nominal", [(v, roof.at(v)) for v in (x.low, knee, x.high)])]
    named = zip(points, rates, strict=True)
    chart.dots = [
        Dot(work.intensity, value, f"{name}: {rate(value)}, {value / roof.at(work.intensity):.0%} of the roof")
        for (name, work, _), value in named
    ]
    return chart.svg("roofline")


def rate(value: float) -> str:
    """Operations a second with a fitting unit: `51 T/s`."""
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}/s"
    return f"{value:.3g} /s"
