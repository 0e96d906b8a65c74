"""Every exercise, by its own checker: solutions pass, starters and typical mistakes get the sentence that helps."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from exercises.core.chapters import CHAPTERS
from exercises.core.exercise import HOME, catalogue
from exercises.core.verdict import hint, verdict
from tests.exercise_table import DOCUMENT, with_table
from tests.exercises.mistakes import all_mistakes
from tests.nonempty import nonempty

EXERCISES = catalogue()
MISTAKES = all_mistakes()
EMULATED = {"block_sums"}
WITHOUT_EMULATOR = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")


def cases(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=[WITHOUT_EMULATOR] if name in EMULATED else []) for name in names]


@pytest.mark.parametrize("name", cases(EXERCISES))
def test_solutions_pass_and_mistakes_get_their_sentence(name: str, tmp_path: Path) -> None:
    exercise = EXERCISES[name]
    assert verdict(name, exercise.solution) is None
    starter = verdict(name, exercise.starter)
    assert starter is not None and MISTAKES[name].starter in starter
    right = exercise.solution.read_text()
    for k, mistake in enumerate(MISTAKES[name].answers):
        assert right.count(mistake.old) >= 1, mistake
        path = tmp_path / f"{name}_{k}.py"
        path.write_text(right.replace(mistake.old, mistake.new))
        told = verdict(name, path)
        assert told is not None and mistake.sentence in told, (mistake, told)


@pytest.mark.parametrize("name", cases(name for name, mistakes in MISTAKES.items() if mistakes.right))
def test_other_right_answers_pass(name: str, tmp_path: Path) -> None:
    right = EXERCISES[name].solution.read_text()
    for k, (old, new) in nonempty(enumerate(MISTAKES[name].right)):
        assert old in right, old
        path = tmp_path / f"{name}_{k}.py"
        path.write_text(right.replace(old, new))
        assert verdict(name, path) is None, (old, new)


def test_every_exercise_is_whole() -> None:
    for folder in ("starters", "checks", "solutions"):
        assert {p.stem for p in (HOME / folder).glob("*.py")} - {"__init__"} == set(EXERCISES), folder
    assert set(MISTAKES) == set(EXERCISES)
    for name, exercise in EXERCISES.items():
        assert len({m.sentence for m in MISTAKES[name].answers}) >= 3, name
        assert exercise.statement and 1 <= exercise.chapter <= 12 and exercise.minutes > 0
        assert len(hint(name)) > 40, name
        assert "..." in exercise.starter.read_text() and "..." not in exercise.solution.read_text(), name


def test_every_chapter_has_two() -> None:
    counts = {chapter: sum(e.chapter == chapter for e in EXERCISES.values()) for chapter in CHAPTERS}
    assert min(counts.values()) >= 2 and sum(counts.values()) == len(EXERCISES) >= 24


def test_the_table_of_exercises_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == with_table(DOCUMENT.read_text()), "run `python -m tests.exercise_table`"
