"""The chapters that exercises belong to, each with the pages to read first."""

from __future__ import annotations

from typing import NamedTuple


class Chapter(NamedTuple):
    """`pages` are links from `docs`: a page, or a part of one."""

    title: str
    pages: tuple[str, ...]


CHAPTERS = {
    1: Chapter("an expression and its meaning", ("01_from_expression_to_c.md#say-what-to-compute", "te_lite.md")),
    2: Chapter("a schedule is a list of steps", ("01_from_expression_to_c.md#schedule-it-by-hand",)),
    3: Chapter("bound inference", ("01_from_expression_to_c.md#schedule-it-by-hand", "architecture.md")),
    4: Chapter("lowering and the oracle", ("01_from_expression_to_c.md#lower-it-and-run-it", "verifier.md")),
    5: Chapter("C, vectors and registers", ("01_from_expression_to_c.md#print-it-as-c",)),
    6: Chapter(
        "CUDA on the emulator", ("01_from_expression_to_c.md#the-same-language-on-a-gpu", "05_tensor_cores.md#banks")
    ),
    7: Chapter("sketches and rules", ("02_from_a_sketch_to_a_search.md", "replacing_a_part.md#sketch-rule")),
    8: Chapter("populations, features, models, evolution", ("02_from_a_sketch_to_a_search.md#many-rows-at-once",)),
    9: Chapter("measuring honestly", ("measuring.md",)),
    10: Chapter("networks and the task scheduler", ("03_a_whole_network.md",)),
    11: Chapter("an accelerator: VTA", ("vta.md",)),
    12: Chapter("research: your own part", ("replacing_a_part.md#a-fair-comparison",)),
}
