"""`ansor vta explore`: the convolutions of ResNet-18 on other machines."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ansor.cli.written import require_picture, write_picture
from ansor.core.errors import TaskError
from ansor.report.scale import spanning
from ansor.report.svg import Chart, Dot, Line
from te_lite.errors import require

from ..core.environment import get_env
from ..tuning.explore import Explored, Layer, explore, grid, pareto, per_image
from .chart_file import chart_file
from .timeline_command import RESNET

RUNS = {"C2": 4, "C5": 3, "C8": 3, "C11": 3}
FIELDS = {
    "batch": "log_batch", "block": "log_block", "uop": "log_uop_buff_size", "inp": "log_inp_buff_size",
    "wgt": "log_wgt_buff_size", "acc": "log_acc_buff_size",
}  # fmt: skip
KIB = 1024


def explore_machines(args: argparse.Namespace) -> int:
    """Print cycles and memory of each machine of a grid, and draw them; gives the exit code.

    Raises TaskError for sizes that no machine has, and for a file that is there and no picture.
    """
    if args.output:
        require_picture(args.output)
    base = get_env(args.config).config
    choices = {field: _powers(name, getattr(args, name)) for name, field in FIELDS.items() if getattr(args, name)}
    scales = _factors(args.bandwidth)
    machines = list(grid(base, choices))
    law = "no machine has these sizes: indices of accumulators, inputs and weights must fill the bits of a micro-op"
    require(machines, TaskError, "explore", law, got={name: getattr(args, name) for name in FIELDS})
    names = args.layers.split(",")
    law = f"known layers are {', '.join(RESNET)}"
    require(all(name in RESNET for name in names), TaskError, "--layers", law, got=args.layers)
    layers: dict[Layer, int] = {RESNET[name]: RUNS.get(name, 1) for name in names}
    found = []
    print(f"{'machine':<36}{'KiB':>7}{'cycles':>12}{'an image':>12}", flush=True)
    for one in explore(layers, machines, scales):
        found.append(one)
        print(f"{one.name:<36}{one.memory / KIB:>7.0f}{one.cycles:>12.0f}{per_image(one):>12.0f}", flush=True)
    best = pareto(found)
    print("none is better in both: " + ", ".join(one.name for one in best))
    if args.output:
        write_picture(args.output, drawing(found, best))
    return 0


def drawing(found: Sequence[Explored], best: Sequence[Explored]) -> str:
    """Cycles of an image against memory, an SVG file; a line joins those that no other one beats in both."""
    memory, cycles = [e.memory / KIB for e in found], [per_image(e) / 1e6 for e in found]
    chart = Chart(spanning(memory, True, 1.1), spanning(cycles, True, 1.1), "memory, KiB", "million cycles an image")
    chart.lines.append(Line("none is better", [(e.memory / KIB, per_image(e) / 1e6) for e in best]))
    chart.dots += [Dot(x, y, e.name) for x, y, e in zip(memory, cycles, found, strict=True)]
    return chart_file(chart, "cycles of ResNet-18's convolutions against on-chip memory")


def _powers(name: str, given: str) -> list[int]:
    """Logarithms of sizes, one or several with commas."""
    parts = [p.strip() for p in given.split(",")]
    ok = all(p.isascii() and p.isdecimal() for p in parts)
    require(ok, TaskError, f"--{name}", "logarithms of sizes with commas between them are needed", got=given)
    return [int(p) for p in parts]


def _factors(given: str) -> list[float]:
    """Factors of bandwidth, above 0."""
    try:
        found = [float(p) for p in given.split(",")]
    except ValueError:
        found = []
    ok = bool(found) and all(0 < x < float("inf") for x in found)
    require(ok, TaskError, "--bandwidth", "factors above 0 with commas between them are needed", got=given)
    return found
