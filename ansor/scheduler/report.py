"""The texts of a tuning run: the table of tasks with its summary line, and a line of the latency curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TITLE = ("-" * 70, "-" * 30 + "  [ Task Scheduler ]", "-" * 70)
DESCRIPTION = 61
NUMBERS = (12, 14, 6)


@dataclass(frozen=True)
class Row:
    """A task: its least latency in seconds (None when unknown), its operations, and how many trials it had."""

    description: str
    cost: float | None
    flops: float
    trials: int


@dataclass(frozen=True)
class Summary:
    """All tasks together: the objective (None when unknown), and seconds since the start.

    The objective is the weighted sum of the latencies, in seconds, or a number of the user's own.
    """

    score: float | None
    trials: int
    elapsed: float
    own_objective: bool = False


def milliseconds(seconds: float | None, unknown: str) -> str:
    """`1.587`, or the word for an unknown time."""
    return unknown if seconds is None else f"{1e3 * seconds:.3f}"


def table_text(rows: Sequence[Row], summary: Summary, next_id: int | None) -> str:
    """The table that is printed before each round; tasks with descriptions get a column for them."""
    described = any(row.description for row in rows)
    header = ["Latency (ms)", "Speed (GFLOPS)", "Trials"]
    lines = [_line(" ID ", "Task Description".center(DESCRIPTION) if described else None, header)]
    rule = "-" * len(lines[0])
    lines.append(rule)
    for k, row in enumerate(rows):
        speed = "-" if row.cost is None else f"{max(row.flops, 0.0) / row.cost / 1e9:.2f}"
        texts = [milliseconds(row.cost, "-"), speed, str(row.trials)]
        cells = [text.rjust(width) for text, width in zip(texts, NUMBERS, strict=True)]
        lines.append(_line(f"{k:4d}", _clipped(row.description).rjust(DESCRIPTION) if described else None, cells))
    return "\n".join([*TITLE, *lines, rule, summary_text(summary, next_id)])


def _line(number: str, description: str | None, cells: Sequence[str]) -> str:
    return "| " + " | ".join([number, *([] if description is None else [description]), *cells]) + " |"


def _clipped(text: str) -> str:
    return text if len(text) <= DESCRIPTION else text[: DESCRIPTION - 3] + "..."


def summary_text(summary: Summary, next_id: int | None) -> str:
    """The line below the table; `next_id` is None after the last round."""
    following = "-" if next_id is None else str(next_id)
    latency = f"Estimated total latency: {milliseconds(summary.score, '-')} ms"
    objective = f"Objective: {'-' if summary.score is None else f'{summary.score:.6g}'}"
    return (
        f"{objective if summary.own_objective else latency}\tTrials: {summary.trials}"
        f"\tUsed time : {summary.elapsed:.0f} s\tNext ID: {following}"
    )


def curve_text(summary: Summary) -> str:
    """A line of the latency curve, six cells separated by tabs."""
    return (
        f"ElapsedTime(s)\t{summary.elapsed:.0f}\tEstimatedLatency(ms)\t{milliseconds(summary.score, 'N/A')}"
        f"\tTrials\t{summary.trials}"
    )
