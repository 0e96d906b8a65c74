"""What was run so far, added up in a committed file: seeds, programs, findings and refusals, by commit."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .outcome import Outcome

PLACE = Path(__file__).parent / "totals.json"


@dataclass
class Sums:
    """Outcomes added up."""

    seeds: list[int] = field(default_factory=list)
    programs: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    compared: float = 0.0
    first: dict[str, int] = field(default_factory=dict)

    def add(self, outcome: Outcome) -> None:
        self.seeds.append(outcome.seed)
        self.programs.update(outcome.programs)
        self.refusals.update(outcome.refusals)
        self.findings.update([f.kind for f in outcome.findings])
        self.compared += outcome.compared
        for text in outcome.refusals:
            self.first.setdefault(text, outcome.seed)

    def line(self) -> str:
        """One line for people."""
        programs = ", ".join(f"{n} {name}" for name, n in sorted(self.programs.items()))
        found = ", ".join(f"{n} {name}" for name, n in sorted(self.findings.items())) or "nothing found"
        refused = sum(self.refusals.values())
        share = 100 * self.compared / max(len(self.seeds), 1)
        right = f"{len(self.seeds)} seeds, right: {programs}, {share:.0f} % of the elements compared"
        return f"{right}; refused: {refused}; {found}"


def commit() -> str:
    """The commit of the working tree, with a + where it was changed; "?" where there is none."""
    head = subprocess.run(["git", "describe", "--always", "--dirty=+"], capture_output=True, text=True, check=False)
    return head.stdout.strip() or "?"


def done(kind: str) -> set[int]:
    """The seeds that were run at this commit."""
    entries = [e for e in _read() if (e["kind"], e["commit"]) == (kind, commit())]
    return {s for e in entries for a, b in e["seeds"] for s in range(a, b)}


def summary(kind: str, sums: Sums, found: Sequence[tuple[int, str]], seconds: float, at: str) -> dict[str, Any]:
    """One run as JSON: what it ran, at which commit, and what it found."""
    return {
        "kind": kind, "commit": at, "seconds": round(seconds), "processors": os.cpu_count(),
        "seeds": _ranges(set(sums.seeds)), "count": len(sums.seeds),
        "compared": round(sums.compared / max(len(sums.seeds), 1), 4), "programs": dict(sorted(sums.programs.items())),
        "findings": dict(sorted(sums.findings.items())), "found": [list(x) for x in sorted(found)],
        "refusals": dict(sums.refusals.most_common()),
    }  # fmt: skip


def record(kind: str, sums: Sums) -> None:
    """Add to the entry of this kind and commit."""
    if not sums.seeds:
        return
    entries = _read()
    here = next((e for e in entries if (e["kind"], e["commit"]) == (kind, commit())), None)
    if here is None:
        here = {"kind": kind, "commit": commit(), "seeds": [], "count": 0, "programs": {}, "findings": {},
                "refusals": {}}  # fmt: skip
        entries.append(here)
    seeds = {s for a, b in here["seeds"] for s in range(a, b)} | set(sums.seeds)
    here["seeds"], here["count"] = _ranges(seeds), len(seeds)
    for name in ("programs", "findings", "refusals"):
        here[name] = dict(sorted((Counter(here[name]) + getattr(sums, name)).items()))
    PLACE.write_text(json.dumps(entries, indent=1) + "\n")


def _read() -> list[dict[str, Any]]:
    return json.loads(PLACE.read_text()) if PLACE.exists() else []


def _ranges(seeds: set[int]) -> list[list[int]]:
    out: list[list[int]] = []
    for s in sorted(seeds):
        if out and out[-1][1] == s:
            out[-1][1] = s + 1
        else:
            out.append([s, s + 1])
    return out
