"""What a person sees on a terminal while a search runs: a bar and a small table that are redrawn in place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ..core.tasks.measure_values import MeasureInput, MeasureResult
from ..core.tasks.task import SearchTask
from .progress import Tally, Usage, rate_text, seconds_text, use_lines


class LiveDisplay:
    """A bar and a small table that are redrawn in place."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.tally = Tally()
        self.doing, self.since = "", 0.0
        self.title = ""
        self.flops = 0.0
        self.usage: Usage = list
        self.live: Live | None = None

    @contextmanager
    def run(self, task: SearchTask, trials: int) -> Iterator[None]:
        self.tally, self.flops = Tally(), task.compute_dag.flop_ct
        self.title = f"{task.title} for {task.target}"
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
            TimeRemainingColumn(), console=self.console,
        )  # fmt: skip
        self.bar_task = self.bar.add_task("trials", total=trials or None)
        with Live(self, console=self.console, refresh_per_second=8) as self.live:
            yield
            self.doing = ""
        self.live = None

    def __rich__(self) -> Group:
        table = Table.grid(padding=(0, 2))
        rows = [("task", self.title)]
        if self.tally.best is not None:
            rows.append(("best", f"{seconds_text(self.tally.best)}  {rate_text(self.flops, self.tally.best)}"))
        rows += [("last", self.tally.last), ("failed", self.tally.failures() or "0")]
        waited = f"{self.doing} ({time.monotonic() - self.since:.0f} s)" if self.doing else ""
        rows += [("device", line) for line in use_lines(self.usage())] + [("now", waited)]
        for name, value in rows:
            if value:
                table.add_row(Text(name, "dim"), Text(value))
        return Group(table, self.bar)

    def phase(self, text: str) -> None:
        self.doing, self.since = text, time.monotonic()

    def result(self, task: SearchTask, inp: MeasureInput, result: MeasureResult, best: float | None) -> None:
        self.tally.add(result, best)
        if self.live is not None:
            self.bar.update(self.bar_task, completed=self.tally.done)

    def devices(self, usage: Usage) -> None:
        self.usage = usage

    def note(self, text: str, best: float | None = None) -> None:
        self.tally.best = best or self.tally.best
        self.console.print(Text(text))


def on_terminal() -> LiveDisplay | None:
    """The display of this terminal; None where there is none that can redraw."""
    console = Console()
    return LiveDisplay(console) if console.is_terminal and not console.is_dumb_terminal else None
