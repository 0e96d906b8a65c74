"""The timeline: every instruction once, and what is drawn is what was timed."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from tests.vta_sim.conv import Layer, tiles_of
from tests.vta_sim.packed import ConvProgram
from vta_sim import Device
from vta_sim.core.kinds import Module
from vta_sim.sim import Span, picture, spans, text


@pytest.fixture(scope="module")
def drawn() -> list[Span]:
    launch = ConvProgram(Device(), Layer(7, 32, 64, 3, 1, 1), tiles_of(7, 7, 1, 2, 2, 1)).run()
    return spans(launch.columns, launch.timing())


def test_spans_of_a_module_do_not_overlap(drawn: list[Span]) -> None:
    assert [s.index for s in drawn] == list(range(42))
    for module in Module:
        mine = [s for s in drawn if s.module is module]
        assert mine and all(a.end <= b.start for a, b in pairwise(mine))
    assert drawn[11].title.startswith("GEMM uops[14,56)") and drawn[11].kind == "GEMM" and drawn[3].kind == "GEMM reset"
    assert drawn[-1].kind == "" and drawn[0].kind == ""


def test_text(drawn: list[Span]) -> None:
    lines = text(drawn, width=60).splitlines()
    assert [line[:8].strip() for line in lines[:3]] == ["load", "compute", "store"]
    assert all(len(line) == 68 for line in lines[:3])
    assert "G" in lines[1] and "S" in lines[2] and "S" not in lines[1] and {"i", "w"} <= set(lines[0][8:])
    assert "G GEMM" in lines[3] and "a LOAD ACC" not in lines[3]
    assert text([], width=5).splitlines()[0] == "load    ....."


def test_picture(drawn: list[Span]) -> None:
    root = ElementTree.fromstring(picture(drawn, "7 x 7 & more"))
    boxes = [r for r in root.iter() if r.tag.endswith("rect") and list(r)]
    assert len(boxes) == sum(1 for s in drawn if s.kind)
    lanes = {float(box.attrib["y"]) for box in boxes}
    assert len(lanes) == 3
    begin, end = min(s.start for s in drawn), max(s.end for s in drawn)
    widest = max(boxes, key=lambda b: float(b.attrib["width"]))
    longest = max((s for s in drawn if s.kind), key=lambda s: s.end - s.start)
    expected = (longest.end - longest.start) / (end - begin) * 1000
    assert float(widest.attrib["width"]) == pytest.approx(expected, abs=0.01)
    assert longest.title in (widest[0].text or "")
