"""What is known of the rows of `benchmarks.operators`: a JSON file that runs add to, and the table made of it.

A found row is a JSON object: `row`, `target`, `threads` (0 on a GPU), `machine`, `commit`, `date`; `sides`, what was
timed; `asked`, `trials` and `complete`, what the search was to measure, has measured, and whether it is through;
`search`, the trials and seconds of the runs that reached their end; `computation`, which of ours was the fastest;
`ours_us` and `torch_us` by variant, medians; `best`, the fastest variant; `figures`, what limits are about
(`benchmarks/operator_rows.py`); `error_bar`, half of what the middle half of the ratios of single rounds spans,
relative to their median; `errors` of each result against float64, ‖got - want‖ / ‖want‖; `refused`, variants that
PyTorch does not compile, and why.  A row that could not be measured has `failure` instead of times.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansor.core.errors import TaskError
from benchmarks import report
from benchmarks.operator_limits import Limit
from benchmarks.operator_rows import MEAN, Row
from te_lite.errors import require

Found = dict[str, Any]
Place = tuple[str, str, int]
"""Target, machine and threads: what figures may be compared within."""
HEADER = ["row", "part", "ours us", "PyTorch us", "its best", "ratio", "+- %", "TB/s", "trials", "s/trial", "limit",
          "holds", "commit"]  # fmt: skip


def place_of(found: Found) -> Place:
    return found["target"], found["machine"], found["threads"]


class Journal:
    """The rows that were found, the latest of each row, place and sides; kept in a JSON file."""

    def __init__(self, file: str | None, others: Sequence[str] = ()) -> None:
        self.file = file
        self._found: dict[tuple[str, Place, str], Found] = {}
        for name in [*others, *([file] if file is not None and Path(file).exists() else [])]:
            for found in json.loads(Path(name).read_text())["figures"]["rows"]:
                self._enter(found)

    def _enter(self, found: Found) -> None:
        key = found["row"], place_of(found), found["sides"]
        if key not in self._found or self._found[key]["date"] <= found["date"]:
            self._found[key] = found

    def add(self, found: Found, rows: Sequence[Row]) -> None:
        """Keep a row, and write the file anew; `rows` are those that means are about."""
        self._enter(found)
        means = {
            f"{part}, {', '.join(map(str, place))}": {"ratio": mean, "rows": count, "of": of}
            for place in self.places() for part, (mean, count, of) in self.means(rows, place).items()
        }  # fmt: skip
        figures = {"rows": list(self._found.values()), "geometric means": means}
        report.write_json(self.file, figures, found["machine"])

    def get(self, row: str, place: Place, sides: str) -> Found | None:
        """The latest that was found of a row."""
        return self._found.get((row, place, sides))

    def places(self) -> list[Place]:
        """Where rows were found, in the order of the file."""
        return list(dict.fromkeys(place for _, place, _ in self._found))

    def of_row(self, row: str, place: Place) -> list[Found]:
        """What was found of a row at a place, at most one of each choice of sides."""
        return [found for (name, where, _), found in self._found.items() if (name, where) == (row, place)]

    def means(self, rows: Sequence[Row], place: Place) -> dict[str, tuple[float, int, int]]:
        """By part, the geometric mean of the ratios that were found, of how many rows, and how many there are."""
        out = {}
        for part in dict.fromkeys(r.part for r in rows):
            names = [r.name for r in rows if r.part == part and r.name != MEAN]
            known = [f["figures"] for name in names for f in self.of_row(name, place)]
            ratios = [figures["ratio"] for figures in known if "ratio" in figures]
            if ratios:
                out[part] = math.exp(sum(map(math.log, ratios)) / len(ratios)), len(ratios), len(names)
        return out

    def print_table(self, rows: Sequence[Row]) -> None:
        """A table for each place: its rows, then the means of the parts."""
        for place in self.places():
            target, machine, threads = place
            means = self.means(rows, place)
            lines = []
            for row in rows:
                limits = row.limits[target.split()[0]]
                if row.name != MEAN:
                    lines += [_line(row, found, limits) for found in self.of_row(row.name, place)]
                elif row.part in means:
                    lines.append(_mean_line(row, means[row.part], limits))
            asked = {row.part for row in rows if row.name == MEAN}
            free = [Row(MEAN, part, {}) for part in means if part not in asked]
            lines += [_mean_line(row, means[row.part], ()) for row in free]
            if lines:
                print(f"\n{target} on {machine}" + (f", {threads} threads" if threads else ""))
                report.table(lines, HEADER)


def _line(row: Row, found: Found, limits: Sequence[Limit]) -> list[str]:
    if "failure" in found:
        blank = [""] * (len(HEADER) - 4)
        return [row.name, row.part, "failed", *blank, found["commit"][:7]]
    figures, best = found["figures"], found.get("best")
    trials = str(found["trials"]) if found["complete"] else f"{found['trials']} of {found['asked']}"
    bar = found.get("error_bar")
    return [
        row.name, row.part, _number(figures.get("us"), 2), _number(found["torch_us"].get(best), 2), best or "",
        _number(figures.get("ratio"), 3), _number(None if bar is None else 100 * bar, 1),
        _number(figures.get("TB/s"), 3), trials if "ours" in found["sides"] else "",
        _number(figures.get("s/trial"), 2), " and ".join(map(str, limits)), verdict(limits, figures),
        found["commit"][:7],
    ]  # fmt: skip


def _mean_line(row: Row, mean: tuple[float, int, int], limits: Sequence[Limit]) -> list[str]:
    ratio, count, of = mean
    holds = verdict(limits, {"ratio": ratio}) if count == of else ""
    blanks = [""] * 3
    limit = " and ".join(map(str, limits))
    return [f"{MEAN}, {count} of {of} rows", row.part, *blanks, f"{ratio:.3f}", "", *blanks, limit, holds, ""]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def verdict(limits: Sequence[Limit], figures: Mapping[str, float]) -> str:
    """Whether all limits hold; nothing where there are none, or a figure that decides is missing."""
    found = [limit.holds(figures) for limit in limits]
    if False in found:
        return "does not"
    return "holds" if found and None not in found else ""


def checked_files(files: Sequence[str]) -> Sequence[str]:
    """Files to read; raises TaskError for one that is missing."""
    for file in files:
        require(Path(file).exists(), TaskError, "--resume", "the file must exist", file=file)
    return files
