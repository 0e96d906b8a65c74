"""The table of exercises in docs/exercises.md, made of their starters.

python -m tests.exercise_table      writes the table anew
"""

from __future__ import annotations

from pathlib import Path

from exercises.core.chapters import CHAPTERS
from exercises.core.exercise import catalogue
from tests.marked_table import replaced

DOCUMENT = Path(__file__).parent.parent / "docs" / "exercises.md"
BEGIN = "<!-- begin: table of exercises, written by `python -m tests.exercise_table` -->\n"
END = "<!-- end: table of exercises -->\n"


def table() -> str:
    """A row an exercise; the chapter and its pages stand in the row of its first one."""
    rows, before = ["| chapter | read first | exercise | about | minutes |", "|---|---|---|---|---:|"], 0
    for name, e in catalogue().items():
        chapter = CHAPTERS[e.chapter]
        pages = ", ".join(f"[{page.partition('#')[0].rpartition('/')[2]}]({page})" for page in chapter.pages)
        head = f"{e.chapter} {chapter.title} | {pages}" if e.chapter != before else " | "
        rows.append(f"| {head} | [`{name}`](../exercises/starters/{name}.py) | {e.title} | {e.minutes} |")
        before = e.chapter
    return "\n".join(rows) + "\n"


def with_table(text: str) -> str:
    """A document with the table between its two marks replaced."""
    return replaced(text, BEGIN, table(), END)


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
