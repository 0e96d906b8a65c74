"""`ansor vta roofline`: the convolutions of ResNet-18 below the roof of a machine, latencies hidden and not."""

from __future__ import annotations

import argparse

from ansor.cli.written import require_picture, write_picture
from ansor.core.errors import TaskError
from ansor.report.scale import spanning
from ansor.report.svg import Chart, Dot, Line
from te_lite.errors import require

from ..core.environment import get_env
from ..tuning.roofline import Played, Roof, played, roof_of
from .chart_file import chart_file
from .timeline_command import RESNET


def roofline(args: argparse.Namespace) -> int:
    """Print operations a second of each layer with one virtual thread and with more, and draw them; the exit code."""
    if args.output:
        require_picture(args.output)
    names = args.layers.split(",")
    law = f"known layers are {', '.join(RESNET)}"
    require(all(name in RESNET for name in names), TaskError, "--layers", law, got=args.layers)
    config = get_env(args.config).config
    roof, found = roof_of(config), dict[str, tuple[Played, Played]]()
    print(f"{'layer':<8}{'roof':>8}{'op/byte':>10}{'GOPS':>8}   hidden:{'op/byte':>10}{'GOPS':>8}{'faster':>9}")
    for name in names:
        alone, hidden = found[name] = played(RESNET[name], config, 1), played(RESNET[name], config)
        print(
            f"{name:<8}{roof.at(hidden.intensity):>8.1f}{alone.intensity:>10.1f}{alone.gops:>8.2f}          "
            f"{hidden.intensity:>10.1f}{hidden.gops:>8.2f}{hidden.gops / alone.gops:>8.2f}x",
            flush=True,
        )
    print(f"roof: {roof.gops:.1f} GOPS, {roof.bandwidth:.1f} GB/s")
    if args.output:
        write_picture(args.output, drawing(roof, found))
    return 0


def drawing(roof: Roof, found: dict[str, tuple[Played, Played]]) -> str:
    """The roof as a line, a cross for each layer with one virtual thread and a circle with more: an SVG file."""
    every = [p for pair in found.values() for p in pair]
    ridge = roof.gops / roof.bandwidth
    intensities = [ridge / 4, *[p.intensity for p in every], 4 * ridge]
    x, y = spanning(intensities, True, 1.1), spanning([*[p.gops for p in every], roof.gops], True, 1.2)
    chart = Chart(x, y, "operations for each byte of DRAM; crosses: one thread, circles: latencies hidden", "GOPS")
    ends = [max(min(intensities), min(p.gops for p in every) / roof.bandwidth), ridge, max(intensities)]
    chart.lines.append(Line("the machine's roof", [(i, roof.at(i)) for i in ends]))
    chart.dots += [Dot(a.intensity, a.gops, f"{name}, one thread", cross=True) for name, (a, _) in found.items()]
    chart.dots += [Dot(h.intensity, h.gops, f"{name}, latencies hidden") for name, (_, h) in found.items()]
    return chart_file(chart, "layers of ResNet-18 below the roof of the machine")
