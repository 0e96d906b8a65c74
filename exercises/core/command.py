"""What `ansor exercise` does: list, start, check, hint.

Exit codes: 0 done or right; 1 wrong; 2 bad input; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import difflib
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from .chapters import CHAPTERS
from .child import judge, verdict_of_child
from .exercise import Exercise, catalogue
from .progress import ProgressError, read_progress, write_progress
from .verdict import hint


class Refused(Exception):
    """Bad input, in one sentence."""


def main(words: Sequence[str]) -> int:
    """Run one action with its words, in the current folder."""
    try:
        match list(words):
            case ["list"]:
                return show_list()
            case ["start", name]:
                return start(_exercise(name))
            case ["check", name, *file]:
                return check(_exercise(name), Path(file[0] if file else f"{name}.py"))
            case ["hint", name]:
                print(hint(_exercise(name).name))
                return 0
            case ["judge", name, path, out]:
                judge(name, Path(path), Path(out))
                return 0
        raise Refused("list, start NAME, check NAME [FILE] and hint NAME are the actions")
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (Refused, ProgressError) as error:
        print(f"ansor exercise: {error}", file=sys.stderr)
        return 2


def _exercise(name: str) -> Exercise:
    known = catalogue()
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        raise Refused(f"{name!r} is no exercise; " + (f"{near[0]}?" if near else "`ansor exercise list` shows them"))
    return known[name]


def show_list() -> int:
    """Every exercise with what the learner did with it."""
    progress, known = read_progress(Path.cwd()), catalogue()
    before = 0
    for name, e in known.items():
        if e.chapter != before:
            print(f"{e.chapter}. {CHAPTERS[e.chapter].title}")
        before = e.chapter
        tries = progress.tries.get(name, 0)
        mark = "solved" if name in progress.solved else f"{tries} tried" if tries else ""
        print(f"   {name:<18} {e.minutes:>3} min  {mark:<8}  {e.title}")
    print(f"{len(set(progress.solved) & set(known))} of {len(known)} solved")
    return 0


def start(exercise: Exercise) -> int:
    """Copy the starter into the current folder; a file that is there stays as it is."""
    target = Path.cwd() / exercise.starter.name
    try:
        with target.open("x") as file:
            file.write(exercise.starter.read_text())
    except FileExistsError as error:
        raise Refused(f"{target.name} is there already, and is left alone") from error
    print(f"{exercise.statement}\n\nRead first: docs/{CHAPTERS[exercise.chapter].pages[0]}")
    print(f"{target.name} is yours; then: ansor exercise check {exercise.name}")
    return 0


def check(exercise: Exercise, path: Path) -> int:
    """Judge a file, and note it."""
    if not path.is_file():
        raise Refused(f"{path}: there is no such file; `ansor exercise start {exercise.name}` makes one")
    progress = read_progress(Path.cwd())
    wrong = verdict_of_child(exercise.name, path)
    write_progress(Path.cwd(), progress.after(exercise.name, wrong is None))
    if wrong is None:
        print(f"{exercise.name}: right")
        return 0
    print(f"{exercise.name}: not yet. {wrong}\nA hint: ansor exercise hint {exercise.name}")
    return 1
