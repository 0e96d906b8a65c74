"""The chapters of docs/chapters: what each must have, and the notebooks that are made of them."""

from __future__ import annotations

import importlib
import json
import re
from operator import attrgetter
from pathlib import Path

import pytest

from exercises.core.chapters import CHAPTERS as TITLES
from exercises.core.exercise import catalogue
from tests.documents import ROOT, blocks
from tests.nonempty import nonempty
from tests.notebooks import CHAPTERS, notebook, write

EACH = pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda path: path.stem)
WITH_MINI = pytest.mark.parametrize("chapter", CHAPTERS[:9], ids=lambda path: path.stem)
MINI = r"\]\(\.\./\.\./mini_ansor/(\w+)\.py\)"


def number(chapter: Path) -> int:
    return int(chapter.stem[:2])


def test_every_chapter_of_the_exercises_is_written() -> None:
    assert [number(chapter) for chapter in CHAPTERS] == sorted(TITLES)
    for chapter in CHAPTERS:
        title = TITLES[number(chapter)]
        assert chapter.read_text().splitlines()[0].lower() == f"# {number(chapter)}. {title.title}".lower()
        assert title.pages[0] == f"chapters/{chapter.name}"


@EACH
def test_a_chapter_says_what_it_is_for(chapter: Path) -> None:
    head = chapter.read_text().partition("\n## ")[0]
    assert re.search(r"\*\*After this chapter you can\*\* \w", head)
    assert re.search(r"\*\*In the paper\*\*.*?section", head, re.DOTALL)
    assert re.search(r"\*\*Time\*\*: [3-6][05] minutes", head)


@WITH_MINI
def test_a_chapter_is_read_in_mini_ansor_first(chapter: Path) -> None:
    head = " ".join(chapter.read_text().partition("\n## ")[0].split())
    first, then, engine = head.partition("**To read**: ")[2].partition(", then ")
    assert then and "mini_ansor" not in engine and "te_lite" not in head.partition("**To read**: ")[0]
    files = [found[1] for found in nonempty(re.finditer(MINI, first))]
    assert first.count("](") == len(files) and engine.count("](../../") == engine.count("](")
    table = (chapter.parent / "README.md").read_text().splitlines()
    (row,) = [line for line in table if line.startswith("|") and f"({chapter.name})" in line]
    assert set(re.findall(MINI, row)) <= set(files)
    for part, file in nonempty(zip(re.split(MINI, first)[2::2], files, strict=True)):
        for name in re.findall(r"`([\w.]+)`", part):
            assert has(file, name), (file, name)


@WITH_MINI
def test_names_that_are_linked_are_in_that_file_of_mini_ansor(chapter: Path) -> None:
    for name, file in nonempty(re.findall(r"\[`([^`]+)`" + MINI, chapter.read_text())):
        assert has(file, name), (file, name)


def has(file: str, name: str) -> bool:
    """Whether a file of `mini_ansor` defines a name, such as `evaluate` or `Region.unite`."""
    try:
        found = attrgetter(name)(importlib.import_module(f"mini_ansor.{file}"))
    except AttributeError:
        return False
    return found.__module__ == f"mini_ansor.{file}"


def test_names_that_are_not_there_are_found() -> None:
    assert has("bounds", "Region.unite") and not has("bounds", "Region.united") and not has("bounds", "affine")


@EACH
def test_a_chapter_draws_twice_and_runs(chapter: Path) -> None:
    found = blocks(chapter.read_text())
    assert sum(block.picture is not None for block in found) >= 2 and any(block.output for block in found)


@EACH
def test_a_chapter_ends_with_its_exercises(chapter: Path) -> None:
    end = chapter.read_text().partition("\n## Exercises\n")[2]
    named = re.findall(r"`ansor exercise start (\w+)`", end)
    assert named == [name for name, exercise in catalogue().items() if exercise.chapter == number(chapter)]
    assert number(chapter) == 12 or f"({CHAPTERS[number(chapter)].name})" in end


def test_the_notebooks_hold_the_chapters(tmp_path: Path) -> None:
    for chapter, path in nonempty(zip(CHAPTERS, write(tmp_path / "notebooks"), strict=True)):
        book = json.loads(path.read_text())
        cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
        assert [cell["source"] for cell in cells] == [b.whole.rstrip("\n") for b in blocks(chapter.read_text())]
        assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"]) and book["nbformat"] == 4


def test_links_of_a_notebook_lead_on() -> None:
    folder = ROOT / "notebooks"
    for chapter in nonempty(CHAPTERS):
        cells = notebook(chapter, folder)["cells"]
        text = "".join(cell["source"] for cell in cells if cell["cell_type"] == "markdown")
        for target in nonempty(re.findall(r"\]\(([^)#\s]+)", text)):
            others = [f"{other.stem}.ipynb" for other in CHAPTERS]
            assert "://" in target or target in others or (folder / target).resolve().exists(), target
