"""What came of one description: programs that were right, refusals by sentence, and findings."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Finding:
    """One thing that must not be.

    `kind` is exception, mismatch, verifier, features, compiler, emulator, crash or hang; `phase` says where it was
    seen, `steps` is the program (JSON of its steps) where there is one.
    """

    kind: str
    phase: str
    target: str
    text: str
    steps: str = ""

    @property
    def signature(self) -> str:
        """What findings of one cause have in common: no numbers, no names."""
        return f"{self.kind} in {self.phase} ({self.target}): {law(self.text)}"


@dataclass
class Outcome:
    """The result of one seed; `seconds` is its share of the time of its batch."""

    seed: int
    programs: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    compared: float = 1.0

    def refuse(self, phase: str, target: str, error: Exception) -> None:
        self.refusals[f"{phase} ({target}): {type(error).__name__}: {law(str(error))}"] += 1


def law(text: str) -> str:
    """A message without what differs from case to case."""
    text = re.sub(r"(, |: )got .*", "", text.splitlines()[0] if text else "")
    text = re.sub(r"`[^`]*`|'[^']*'|\[[^\]]*\]", "..", text)
    text = re.sub(r"\b[a-z]\w*[_.]?\d[\w.]*|-?\d[\d.e+-]*", "#", text)
    return re.sub(r"^[^:\s]+: ", "", text)[:160]


def raised(error: BaseException) -> str:
    """An exception with the innermost line of the project that it passed."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(ROOT)]
    own = [f for f in frames if "/tests/" not in f.filename] or frames
    where = f" at {own[-1].filename.removeprefix(ROOT + '/')}:{own[-1].lineno}" if own else ""
    return f"{type(error).__name__}{where}: {error}"
