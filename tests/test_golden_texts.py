"""The texts of eight programs are those in tests/golden/programs.

A difference is a change of lowering or of a backend: look at it, and if it is what you wanted, write the texts anew
with `python -m tests.golden_texts`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import te_lite as te
from te_lite.meaning.interp import run
from tests.golden_texts import CPU, FOLDER, GPU, Made, texts, write
from tests.oracle import Oracle

MOST_LINES = 90


def name_of(made: Made) -> str:
    return made.__name__


@pytest.mark.parametrize("made", [*CPU, *GPU], ids=name_of)
def test_the_text_is_the_golden_one(made: Made) -> None:
    for name, text in texts(made):
        path = FOLDER / made.__name__ / name
        assert text == path.read_text(), f"{path.relative_to(FOLDER)}: see `python -m tests.golden_texts`"
        assert text.count("\n") <= MOST_LINES


@pytest.mark.parametrize("made", [*CPU, *GPU], ids=name_of)
def test_the_programs_are_right(made: Made) -> None:
    """They compute what the reference does."""
    state = made()
    assert Oracle(state.dag, np.random.default_rng(0)).mismatch(te.lower(state), run) is None


def test_the_command_writes_these_files_and_no_others(tmp_path: Path) -> None:
    write(tmp_path)
    files = [{p.relative_to(folder) for p in folder.rglob("*") if p.is_file()} for folder in (tmp_path, FOLDER)]
    assert files[0] == files[1] and len(files[0]) == 16
