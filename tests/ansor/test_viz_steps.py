"""A schedule step by step: steps in order, nests before and after, what differs, one safe file."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ansor
import te_lite as te
from ansor.cli.main import main
from ansor.sketch import generate_sketches
from ansor.viz.boxes import Box
from ansor.viz.step_frames import step_frames
from ansor.viz.steps_page import steps_page
from te_lite.computation.text import op_lines
from te_lite.printing.python_text import python_schedule, python_steps
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from tests.ansor.default_programs import default_of
from tests.ansor.test_report import Page
from tests.workloads import matmul


@pytest.fixture(scope="module", params=["c", "sketch c", "cuda", "sketch cuda"])
def state(request: pytest.FixtureRequest) -> State:
    task = ansor.SearchTask(matmul, (64, 48, 32), target=request.param.split()[-1])
    if request.param.startswith("sketch"):
        return generate_sketches(task.compute_dag, task.target, task.hardware_params)[0]
    return default_of(task)


def lines(boxes: Sequence[Box]) -> list[tuple[str, str]]:
    """Each line with its class."""
    found = []
    for box in boxes:
        found += [(line.strip(), box.kinds[k] if k < len(box.kinds) else "") for k, line in enumerate(box.lines)]
        found += lines(box.inside)
    return found


def counted(boxes: Sequence[Box], kind: str) -> Counter[str]:
    return Counter([line for line, kinds in lines(boxes) if kind in kinds.split()])


def test_frames_follow_the_steps(state: State) -> None:
    frames = step_frames(state)
    assert [f.letters for f in frames] == [step.tag for step in state.steps]
    assert [line for f in frames for line in f.lines] == python_schedule(state).splitlines()[
        len(python_steps(state)[0]) :
    ]
    for k, frame in enumerate(frames):
        before, after = Counter(dict(lines(frame.before)).keys()), lines(frame.after)
        if k:
            assert [line for line, _ in lines(frame.before)] == [line for line, _ in lines(frames[k - 1].after)]
        gone, new = counted(frame.before, "gone"), counted(frame.after, "new")
        texts = Counter([line for line, _ in lines(frame.before)])
        assert texts - gone + new == Counter([line for line, _ in after]) and before
        assert not gone & new


def test_lines_of_steps_are_those_of_shorter_schedules(state: State) -> None:
    parts = python_steps(state)
    for k in range(len(state.steps) + 1):
        text = python_schedule(replay(state.dag, state.steps[:k]))
        assert text.splitlines() == [line for part in parts[: k + 1] for line in part]


def test_half_a_schedule_has_a_note() -> None:
    """A stage computed at a loop that its reader is not in has no bounds until the reader moves there."""
    a = te.placeholder((8, 8), name="a")
    b = te.compute((8, 8), lambda i, j: a[i, j] + 1.0, name="b")
    c = te.compute((8, 8), lambda i, j: b[i, j] * 2.0, name="c")
    d = te.compute((8, 8), lambda i, j: c[i, j] - 3.0, name="d")
    s = te.create_schedule(d.op)
    s[b].compute_at(s[d], d.op.axis[0])
    s[c].compute_at(s[d], d.op.axis[0])
    first, second = step_frames(s.state)
    assert first.note.startswith("no bounds yet: ") and second.note == ""
    assert first.note.split(": ", 1)[1] in steps_page(s.state, "t").replace("&#x27;", "'")


def test_the_page_is_safe_and_whole() -> None:
    name = "</pre><script>alert(1)</script>"
    a = te.placeholder((8,), name=name)
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    s = te.create_schedule(b.op)
    s[b].split(b.op.axis[0], 4)
    text = steps_page(s.state, "<script>title")
    page = Page(text)
    assert page.tags.count("script") == 1 and page.tags.count("section") == 2 and page.links == []
    assert re.findall(r"(?:https?:)?//(?!www\.w3\.org/2000/svg)\w+", text) == []
    assert op_lines(b.op)[0].startswith("b(i) =") and 'max="1"' in text


def test_the_command(tmp_path: Path, monkeypatch: Any, refused: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["draw", "steps", "matmul", "--shape", "64,48,32", "--target", "cuda"]) == 0
    assert Path("steps.html").read_text().startswith("<!DOCTYPE html>")
    refused(["draw", "steps", "norm", "--sketch", "0", "-o", "norm.html"], "rfactor C: the extents of its loops")
    assert not Path("norm.html").exists()
    Path("other.html").write_text("notes")
    refused(["draw", "steps", "matmul", "-o", "other.html"], "this file is there, and is no page")
