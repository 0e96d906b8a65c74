"""`ansor vta timeline`: the busy times of each module of the machine for one convolution."""

from __future__ import annotations

import argparse

from ansor.autotvm.record import best_pairs, is_for, load_from_file
from ansor.cli.written import require_picture, write_picture
from ansor.core.errors import TaskError
from te_lite.errors import require

from ..core.config import Config
from ..core.environment import get_env
from ..graph.machine_kernel import TEMPLATE, Workload
from ..graph.schedule import knobs_of
from ..sim import picture, spans, text
from ..top import ConvKnobs
from ..tuning.layer_programs import default_knobs, launch_draft, launch_layer

RESNET = {
    "C2": (56, 56, 64, 64, 3, 1, 1), "C3": (56, 56, 64, 128, 3, 1, 2), "C4": (56, 56, 64, 128, 1, 0, 2),
    "C5": (28, 28, 128, 128, 3, 1, 1), "C6": (28, 28, 128, 256, 3, 1, 2), "C7": (28, 28, 128, 256, 1, 0, 2),
    "C8": (14, 14, 256, 256, 3, 1, 1), "C9": (14, 14, 256, 512, 3, 1, 2), "C10": (14, 14, 256, 512, 1, 0, 2),
    "C11": (7, 7, 512, 512, 3, 1, 1),
}  # fmt: skip
"""Rows, columns, channels in and out, kernel, padding, stride of the convolutions of ResNet-18."""


def timeline(args: argparse.Namespace) -> int:
    """Print when each module of the machine works, and draw it; gives the exit code."""
    if args.output:
        require_picture(args.output)
    config = get_env(args.config).config
    workload = _workload(args.layer, config)
    if args.search == "sketch":
        law = "knobs and logs are those of templates; this draws the program of the fewest cycles"
        require(not (args.knobs or args.log), TaskError, "--search sketch", law)
        launch, title = launch_draft(workload, config), f"{args.layer}: the sketches' program of the fewest cycles"
    else:
        known = _knobs(args.knobs) if args.knobs else _recorded(args.log, workload, config)
        knobs = known or default_knobs(workload, config)
        launch, title = launch_layer(workload, knobs, config), f"{args.layer}: {_described(knobs)}"
    times = launch.timing()
    drawn = spans(launch.columns, times)
    print(f"{title}\n{text(drawn)}")
    busy = ", ".join(f"{module.name.lower()} {share:.0%}" for module, share in times.busy(launch.columns).items())
    print(f"{len(launch.columns)} instructions, {times.cycles:.0f} cycles, {times.ms:.3f} ms; busy: {busy}")
    if args.output:
        write_picture(args.output, picture(drawn, title))
    return 0


def _described(k: ConvKnobs) -> str:
    tiles = f"tiles {k.tile_h}x{k.tile_w}, {k.tile_ci} blocks in, {k.tile_co} out"
    return f"{tiles}, threads {k.oc_nthread} and {k.h_nthread}"


def _workload(layer: str, config: Config) -> Workload:
    """A layer by name or numbers.  Raises TaskError."""
    h, w, ci, co, k, pad, stride = RESNET[layer] if layer in RESNET else _numbers("layer", layer, 7)
    law = f"channels must be multiples of {config.block_in}"
    require(ci % config.block_in == 0 and co % config.block_out == 0, TaskError, "layer", law, got=(ci, co))
    batch, block = config.batch, config.block_in
    data = ("TENSOR", (1, ci // block, h, w, batch, block), "int8")
    kernel = ("TENSOR", (co // block, ci // block, k, k, block, block), "int8")
    return TEMPLATE, data, kernel, (stride, stride), (pad, pad), (1, 1), f"NCHW{batch}n{block}c", "int32"


def _knobs(given: str) -> ConvKnobs:
    return ConvKnobs(1, *_numbers("--knobs", given, 6))


def _recorded(log: str | None, workload: Workload, config: Config) -> ConvKnobs | None:
    """The knobs of the best record; None without a log.  Raises TaskError when it has none for the machine."""
    if log is None:
        return None
    own = [pair for pair in load_from_file(log) if pair[0].workload == workload and is_for(pair[0], config.target_text)]
    require(own, TaskError, log, f"holds no valid record of this layer on {config.model}")
    return knobs_of(best_pairs(own)[0][0].config)


def _numbers(option: str, given: str, count: int) -> list[int]:
    parts = [p.strip() for p in given.split(",")]
    ok = len(parts) == count and all(p.isascii() and p.isdecimal() for p in parts)
    names = f"; known layers are {', '.join(RESNET)}" if option == "layer" else ""
    require(ok, TaskError, option, f"{count} numbers with commas between them are needed{names}", got=given)
    return [int(p) for p in parts]
