"""The pictures of a report: best so far, the decisions, what was expected, where the time went, the roofline."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from ..core.tasks.measure_values import MeasureResult, Spent
from ..measure.progress import outcome_text, seconds_text
from ..records.noted_records import cause
from ..space.step_decisions import Decisions
from .curves import Points, active_seconds, steps_of
from .predictions import Round
from .roofline import Roof, Work
from .scale import Scale, spanning
from .svg import DASHES, Bar, Chart, Column, Dot, Line, Row, parallel, stacked

Value = TypeVar("Value")
CROSSES, DOTS = 400, 800
"""Failures of a curve, and programs beside what was expected of them, of which more are not drawn."""
LARGE_DOTS = 40
NAMES_SHARE = 0.1
"""Of the height of a curve, for the names of lines above it."""
LINES, FEW_LINES = 240, 80
"""Programs that are drawn of one structure: the best of them, and others at equal distances down to the worst."""


def best_so_far(curves: Mapping[str, Points], x_name: str, failures: Sequence[float], goal: float | None) -> str:
    """Curves by name; failed trials are crosses at the bottom, and a dotted line says what `goal` seconds are."""
    points = [p for curve in curves.values() for p in curve]
    if not points:
        return ""
    ys = [y for _, y in points] + ([goal] if goal else [])
    x = Scale(0, max([x for x, _ in points] + [1.0]))
    y = spanning(ys, True, 1.15)
    y = replace(y, high=y.high * (y.high / y.low) ** NAMES_SHARE)
    chart = Chart(x, y, x_name, "best so far", y_text=seconds_text)
    chart.lines = [
        Line(name if len(curves) > 1 else "", curve, k % 4) for k, (name, curve) in enumerate(curves.items())
    ]
    if goal:
        chart.lines.append(Line("untuned", [(x.low, goal), (x.high, goal)], 2))
    chart.dots = [Dot(at, chart.y.low, f"failed: {at:g}", cross=True) for at in sampled(failures, CROSSES)]
    return chart.svg(f"best time so far over {x_name}")


def sampled(values: Sequence[Value], most: int) -> list[Value]:
    """At most so many of some values, at equal distances."""
    places = np.unique(np.linspace(0, len(values) - 1, min(most, len(values))).astype(int))
    return [values[k] for k in places]


def curve_points(curve: Sequence[float | None], results: Sequence[MeasureResult]) -> tuple[Points, Points]:
    """The best so far of a task over trials, and over seconds at work."""
    trials = [float(k) for k in range(1, len(curve) + 1)]
    return steps_of(trials, curve), steps_of(active_seconds([res.timestamp for res in results]), curve)


def decision_lines(
    table: Decisions, results: Sequence[MeasureResult], best_trial: int | None = None, lines: int = LINES
) -> str:  # fmt: skip
    """Parallel coordinates of the programs of a structure; the last axis is the time, failed programs have none.

    Their classes are `best`, `failed`, and `q0` for those of the fastest quarter, to `q3`.  The thick line is the
    program of `best_trial` (from 1), or that of the least time where the structure has it not.
    """
    own = [results[k] for k in table.members]
    costs = [res.cost for res in own if res.ok]
    if not table.names or not costs:
        return ""
    slowest = max(costs) * 1.3
    times = [res.cost if res.ok else slowest for res in own]
    order = sorted(range(len(own)), key=times.__getitem__, reverse=True)
    kept = sampled(order, lines)
    best = next((k for k, member in enumerate(table.members) if member + 1 == best_trial), order[-1])
    kept = [*[k for k in kept if k != best], best]
    quarters = np.quantile(costs, (0.25, 0.5, 0.75))
    failures = Counter([cause(res.error_no) for res in own if not res.ok]).most_common()
    styles = {name: 1 + n % (len(DASHES) - 1) for n, (name, _) in enumerate(failures)}
    rows = []
    for k in kept:
        numbers = [*map(float, table.values[k]), times[k]]
        title = f"trial {table.members[k] + 1}: {outcome_text(own[k])}"
        kind = "best" if k == best else f"q{np.searchsorted(quarters, own[k].cost)}"
        failed = Row(numbers, "failed", title, styles.get(cause(own[k].error_no), 0))
        rows.append(Row(numbers, kind, title) if own[k].ok else failed)
    columns = [
        Column(name, spanning((float(values.min()), float(values.max())), log=bool(values.min() > 0)))
        for name, values in zip(table.names, table.values.T, strict=True)
    ]
    time = Column("time", Scale(min(costs), slowest, True), seconds_text)
    legend = [("the best program", Row((), "best", "")), ("the fastest quarter", Row((), "q0", ""))]
    legend += [(f"failed: {count} {name}", Row((), "failed", "", styles[name])) for name, count in failures]
    return parallel([*columns, time], rows, "decisions and times", legend)


def expected_and_measured(rounds: Sequence[Round]) -> str:
    """A dot for each program: the seconds that its search expected across, those that it took upwards."""
    pairs = [(found.number, *pair) for found in rounds for pair in found.expected()]
    if not pairs:
        return ""
    scale = spanning([seconds for *_, seconds in pairs], True, 1.1)
    chart = Chart(scale, scale, "expected", "measured", x_text=seconds_text, y_text=seconds_text, low_legend=True)
    chart.lines = [Line("as expected", [(scale.low, scale.low), (scale.high, scale.high)], 2)]
    chart.dots = [
        Dot(guess, seconds, f"trial {trial}, round {number}: {seconds_text(seconds)}", small=True)
        for number, trial, guess, seconds in sampled(pairs, DOTS)
    ]
    return chart.svg("expected and measured times")


def accuracy_by_round(logs: Mapping[str, Sequence[Round]]) -> str:
    """For each log the share of pairs in the right order, over its rounds; a dotted line is that of guessing."""
    found = {name: [(float(one.number), one.accuracy()) for one in rounds] for name, rounds in logs.items()}
    known = {name: [point for point in points if math.isfinite(point[1])] for name, points in found.items()}
    points = [point for line in known.values() for point in line]
    if not points:
        return ""
    x = Scale(1, max(2.0, *[at for at, _ in points]))
    chart = Chart(x, Scale(0, 1), "round", "pairs in order", _whole, "{:.0%}".format)
    chart.lines = [Line("guessing", [(x.low, 0.5), (x.high, 0.5)], 2)]
    for k, (name, line) in enumerate(known.items()):
        chart.lines.append(Line(name if len(known) > 1 else "", line, (0, 1, 3)[k % 3]))
    small = len(points) > LARGE_DOTS
    chart.dots = [Dot(at, share, f"round {at:g}: {share:.0%}", small=small) for at, share in sampled(points, DOTS)]
    return chart.svg("share of pairs in the right order, by round")


def _whole(number: float) -> str:
    return f"{number:g}" if number == int(number) else ""


def where_time_went(logs: Mapping[str, Spent]) -> str:
    """For each log a bar of the seconds of its search, and one of those of the workers, on one scale."""
    bars = []
    for name, spent in logs.items():
        search, workers = spent_texts(spent)
        bars.append(Bar(f"{name}, {search}" if len(logs) > 1 else search, (spent.search, spent.wait)))
        bars.append(Bar(workers, (spent.build, spent.run)))
    return stacked(bars, "where the time went") if bars else ""


def spent_texts(spent: Spent) -> tuple[str, str]:
    """Where the seconds of a search went, and those of its workers, which are added up over programs."""
    search = f"search: chose and learned {spent.search:.1f} s, waited {spent.wait:.1f} s"
    return search, f"workers: built {spent.build:.1f} s, ran {spent.run:.1f} s"


def roofline(roof: Roof, points: Sequence[tuple[str, Work, float]]) -> str:
    """A machine's roof, and tasks under it: each a name, its work and its seconds."""
    rates = [work.flops / seconds for _, work, seconds in points]
    knee = roof.flops / roof.bandwidth
    x = spanning([*[work.intensity for _, work, _ in points], knee], True, 3)
    y = spanning([*rates, roof.flops], True, 3)
    chart = Chart(x, y, "operations a byte", "operations a second", y_text=lambda value: rate(value).removesuffix("/s"))
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
