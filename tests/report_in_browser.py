"""Reports opened in a real browser: in light, in dark, and as wide as a telephone.

python -m tests.report_in_browser                  looks for faults
python -m tests.report_in_browser FOLDER           keeps the pages, too, and pictures of them
python -m tests.report_in_browser LOG PICTURE      draws the page on a log, such as docs/report.png
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ansor.records.lines import parse_line
from ansor.records.notes import NETWORK
from ansor.report.page import write_report
from benchmarks.report_size import LOG, LOGS, grown
from tests.browser import Browser, browser, running

SCREENS = {"light": (1280, 900, False), "dark": (1280, 900, True), "telephone": (375, 740, False)}
"""Width and height in pixels, and whether the colours are dark."""
PORTRAIT = (1100, 1800)
RECORDS = 256
HOSTILE = "<script>window.harmed = 1</script><img src=x onerror='window.harmed = 1'>"
TEXTS = ("Predicted and measured", "search: chose and learned", "the best program", "the runner-up", "failed: ")
NETWORK_TEXTS = ("calls in the network", "A run from end to end took")

WIDER = """[...document.querySelectorAll('body *')].filter(one => !one.closest('.scroll, pre, svg')
  && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1)
  .map(one => one.outerHTML.slice(0, 80))"""
UNSEEN = """[...document.querySelectorAll('svg')].filter(one => one.getBoundingClientRect().width < 100
  || one.getBoundingClientRect().height < 30).length"""
LUMINANCE = """(() => { const level = name => getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3)
  .reduce((sum, value) => sum + Number(value) / 765, 0); return [level('backgroundColor'), level('color')]; })()"""
CROWDED = """[...document.querySelectorAll('p, td, th, h1, h2, h3, summary')].filter(one => one.offsetHeight > 0
  && one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).display !== 'inline')
  .map(one => one.innerText.slice(0, 80))"""


def logs(folder: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """Logs, and what the pages on them must say: one of a task, with hostile text, and one of a network."""
    one = folder / "one.json"
    note = json.dumps({"command": HOSTILE, "seed": 1, "versions": {"ansor": HOSTILE}, "device": HOSTILE})
    one.write_text("".join(line + "\n" for line in [f"# run {note}", *grown(LOG, RECORDS)]))
    yield one, (*TEXTS, HOSTILE)
    network = folder / "network.json"
    lines = [line for line in grown(LOGS / "resnet18_h200.json.gz", 6 * RECORDS)]
    tasks = {json.dumps(parse_line(line)["i"][0][:2]) for line in lines if line[0] == "{"}
    rows = [
        dict(zip(("key", "target"), json.loads(task), strict=True), weight=2, seconds=1e-5) for task in sorted(tasks)
    ]
    ran = {"name": HOSTILE, "tasks": rows, "others": 1e-6, "runs": [2e-4, 2.1e-4, 2.2e-4]}
    network.write_text("".join(line + "\n" for line in [*lines, NETWORK + json.dumps(ran)]))
    yield network, (*NETWORK_TEXTS, HOSTILE)


def faults(shown: Browser, page: Path, dark: bool, texts: tuple[str, ...]) -> Iterator[str]:
    """What is wrong with the page that a browser shows."""
    if shown.complaints:
        yield f"the browser complains: {shown.complaints[0]}"
    if shown.requests != [page.absolute().as_uri()]:
        yield f"it asks for {shown.requests}"
    if wider := shown.value(WIDER):
        yield f"{len(wider)} things are wider than the screen: {wider[:3]}"
    if over := shown.value(CROWDED):
        yield f"{len(over)} texts run out of their places: {over[:3]}"
    width = shown.value("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    if width[0] > width[1]:
        yield f"the page is {width[0]} pixels wide, the screen {width[1]}"
    text = " ".join(str(shown.value("document.body.textContent")).split())
    if missing := [one for one in texts if one not in text]:
        yield f"it does not say {missing}"
    if shown.value("document.scripts.length + document.images.length + Number('harmed' in window)"):
        yield "text of the log became a part of the page"
    if unseen := shown.value(UNSEEN):
        yield f"{unseen} pictures are not to be seen"
    paper, ink = shown.value(LUMINANCE)
    if (paper < ink) != dark or abs(paper - ink) < 0.5:
        yield f"paper and ink are {paper:.2f} and {ink:.2f} bright"


SPOILED = """<!DOCTYPE html><title>spoiled</title><style>body { background: #fff; color: #ccc }</style>
<p style="width: 3000px">wide</p><p style="width: 50px">Donaudampfschifffahrtsgesellschaft</p>
<svg style="width: 9px"></svg>
<script>window.harmed = 1; console.error("harm")</script><img src="missing.png">"""
FAULTS = (
    "complains", "asks for", "wider than", "run out", "pixels wide", "does not say", "became a part", "to be seen",
    "bright",
)  # fmt: skip


def unseen_faults(shown: Browser, folder: Path) -> list[str]:
    """Which of all faults are not found on a page that has them all."""
    page = folder / "spoiled.html"
    page.write_text(SPOILED)
    shown.show(page, *SCREENS["telephone"])
    found = list(faults(shown, page, False, ("a text",)))
    return [f"a page with this fault passes: {name}" for name in FAULTS if not any(name in one for one in found)]


def checked(program: str, kept: str | None) -> int:
    """Opens the pages on all screens and prints what is wrong; the exit status."""
    with tempfile.TemporaryDirectory() as scratch, running(program) as shown:
        folder = Path(kept or scratch)
        folder.mkdir(exist_ok=True)
        wrong = unseen_faults(shown, Path(scratch))
        for log, texts in logs(folder):
            page = log.with_suffix(".html")
            write_report([log], page)
            for name, (width, height, dark) in SCREENS.items():
                shown.show(page, width, height, dark)
                wrong += [f"{page.name}, {name}: {fault}" for fault in faults(shown, page, dark, texts)]
                if kept is not None:
                    page.with_name(f"{page.stem}_{name}.png").write_bytes(shown.picture(width, 4 * height))
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    print(f"reports in {Path(program).name}, {' and '.join(SCREENS)}: {len(wrong) or 'no'} faults")
    return int(bool(wrong))


def draw(program: str, log: Path, picture: Path) -> int:
    """Draws the upper part of the page on a log; the exit status."""
    with tempfile.TemporaryDirectory() as folder, running(program) as shown:
        page = Path(folder) / "report.html"
        write_report([log], page)
        shown.show(page, *PORTRAIT, dark=False)
        picture.write_bytes(shown.picture(*PORTRAIT, scale=0.75))
    return 0


def main(words: list[str]) -> int:
    """The command; the exit status."""
    program = browser()
    if program is None:
        print("no Chromium is installed, so that no report was opened in a browser")
        return 0
    return draw(program, *map(Path, words)) if len(words) == 2 else checked(program, *words or [None])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
