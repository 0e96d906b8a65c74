"""The chapters that exercises belong to, each with the pages to read first."""

from __future__ import annotations

from typing import NamedTuple


class Chapter(NamedTuple):
    """`pages` are links from `docs`: a page, or a part of one."""

    title: str
    pages: tuple[str, ...]


CHAPTERS = {
    1: Chapter("an expression and its meaning", ("chapters/01_expressions.md", "te_lite.md")),
    2: Chapter("a schedule is a list of steps", ("chapters/02_steps.md",)),
    3: Chapter("bound inference", ("chapters/03_bounds.md",)),
    4: Chapter("lowering and the oracle", ("chapters/04_lowering.md", "verifier.md")),
    5: Chapter("C, vectors and registers", ("chapters/05_c.md",)),
    6: Chapter("CUDA on the emulator", ("chapters/06_cuda.md", "tensor_cores.md#banks")),
    7: Chapter("sketches and rules", ("chapters/07_sketches.md", "replacing_a_part.md#sketch-rule")),
    8: Chapter("populations, features, models, evolution", ("chapters/08_search.md",)),
    9: Chapter("measuring honestly", ("chapters/09_measuring.md", "measuring.md")),
    10: Chapter("networks and the task scheduler", ("chapters/10_networks.md",)),
    11: Chapter("an accelerator: VTA and templates", ("chapters/11_accelerator.md", "vta.md")),
    12: Chapter("research: your own part", ("chapters/12_research.md", "replacing_a_part.md#a-fair-comparison")),
}
