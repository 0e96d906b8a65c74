"""A schedule step by step as a page: a slider over the steps, the loop nest before and after.

One file without network access.  Where scripts do not run all steps stand below each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from te_lite.schedule.state import State

from .boxes import Box
from .nest_picture import STYLE as NEST_STYLE
from .nest_picture import boxed, size_of
from .step_frames import StepFrame, step_frames, unscheduled
from .svg import STYLE, drawing

PAGE_STYLE = """
body { font-family: sans-serif; margin: 1em; color: #000; background: #fff }
h1 { font-size: 1.1em; overflow-wrap: anywhere }
nav { position: sticky; top: 0; background: #fff; padding: .5em 0; display: flex; gap: .5em; align-items: center }
nav input { flex: 1; max-width: 60em }
pre { overflow-x: auto; border-left: 4px solid #000; padding: .3em .6em; margin: .5em 0 }
div.both { display: flex; flex-wrap: wrap; gap: 1em; align-items: flex-start }
figure { margin: 0; max-width: 100%; overflow-x: auto }
text.gone { text-decoration: line-through }
text.new { text-decoration: underline; font-weight: bold }
[hidden] { display: none !important }
"""
SCRIPT = """
const slider = document.getElementById("step"), frames = [...document.querySelectorAll("section")];
function show(k) {
  slider.value = Math.min(Math.max(k, 0), frames.length - 1);
  frames.forEach((frame, n) => { frame.hidden = n != slider.value; });
}
slider.addEventListener("input", () => show(slider.value));
document.getElementById("back").addEventListener("click", () => show(+slider.value - 1));
document.getElementById("on").addEventListener("click", () => show(+slider.value + 1));
document.querySelector("nav").hidden = false;
show(0);
"""


def steps_page(state: State, title: str) -> str:
    """The page on the steps of a state; half of a schedule may have no bounds, and is shown without them.

    Raises ScheduleError for a sketch that factors a reduction whose lengths are open: its steps do not replay.
    """
    frames = step_frames(state)
    boxes, definition = unscheduled(state)
    first = _section("no step", definition, [("as it was written", boxes)])
    count = len(frames)
    sections = [first, *[_step(k, count, frame) for k, frame in enumerate(frames, 1)]]
    slider = f'<input id="step" type="range" min="0" max="{count}" value="0" aria-label="step">'
    nav = f'<nav hidden><button id="back">back</button>{slider}<button id="on">on</button></nav>'
    style = f"<style>{PAGE_STYLE}{STYLE}{NEST_STYLE}</style>"
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(title)}</title>'
    body = [f"<h1>{escape(title)}</h1>", LEGEND, nav, *sections, f"<script>{SCRIPT}</script>"]
    lines = ["<!DOCTYPE html>", f'<html lang="en"><head>{head}{style}</head><body>', *body, "</body></html>"]
    return "\n".join(lines) + "\n"


LEGEND = "<p>Lines that a step takes away are struck out on the left, those that it brings underlined on the right.</p>"


def _step(k: int, count: int, frame: StepFrame) -> str:
    note = [f"# {frame.note}"] if frame.note else []
    text = "\n".join([*frame.lines, *note])
    heading = f"step {k} of {count}: {frame.letters}"
    return _section(heading, text, [("before", frame.before), ("after", frame.after)])


def _section(heading: str, text: str, nests: Sequence[tuple[str, Sequence[Box]]]) -> str:
    figures = "".join([_figure(name, boxes) for name, boxes in nests])
    return f'<section><h2>{escape(heading)}</h2><pre>{escape(text)}</pre><div class="both">{figures}</div></section>'


def _figure(name: str, boxes: Sequence[Box]) -> str:
    nest = drawing(*size_of(boxes), f"loop nest {name}", boxed(boxes))
    return f"<figure><figcaption>{escape(name)}</figcaption>{nest}</figure>"
