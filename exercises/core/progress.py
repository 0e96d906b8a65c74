"""What a learner has solved: a small JSON file in the folder where the answers are."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path

NAME = "ansor_exercises.json"


class ProgressError(ValueError):
    """The file is none of ours."""


@dataclass(frozen=True)
class Progress:
    """How often each exercise was checked, and which ones passed."""

    tries: dict[str, int] = field(default_factory=dict)
    solved: tuple[str, ...] = ()

    def after(self, name: str, passed: bool) -> Progress:
        """With one more check."""
        solved = self.solved if not passed or name in self.solved else (*self.solved, name)
        return replace(self, tries={**self.tries, name: self.tries.get(name, 0) + 1}, solved=solved)


def read_progress(folder: Path) -> Progress:
    """The progress in a folder, none where there is no file.  Raises ProgressError for a file that is none of ours."""
    path = folder / NAME
    if not path.exists():
        return Progress()
    try:
        data = json.loads(path.read_text())
        tries, solved = data["tries"], data["solved"]
        if not all(type(n) is int for n in tries.values()) or not all(isinstance(s, str) for s in solved):
            raise TypeError("a count or a name")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ProgressError(f"{path}: is no file of progress; move it away to begin anew") from error
    return Progress(dict(tries), tuple(solved))


def write_progress(folder: Path, progress: Progress) -> None:
    """Write it, whole or not at all."""
    path = folder / NAME
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"tries": progress.tries, "solved": list(progress.solved)}, indent=1) + "\n")
    os.replace(beside, path)
