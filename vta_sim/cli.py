"""The command `ansor vta`, step by step, with what it prints."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

import relay_lite as relay
from ansor.autotvm import FallbackContext, apply_history_best
from ansor.autotvm.record import best_pairs, load_from_file
from ansor.core.errors import TaskError
from relay_lite.ir.nodes import Array, Function
from relay_lite.testing import resnet_v1
from te_lite.errors import require

from .config import Config
from .device_kernels import DeviceKernels
from .environment import Environment, get_env
from .executor import VtaModule
from .graph import conv_workloads, extract_from_program, graph_pack
from .graph.kernel import TEMPLATE, RunKernel, Workload
from .graph.schedule import knobs_of
from .library import build
from .reference import run_kernel as numpy_kernel
from .sim import Device, picture, spans, text
from .top import ConvKnobs
from .tuning import default_knobs, launch_layer, layers, table
from .tuning import tune as tune_tasks

INTERRUPTED = 130
RESNET = {
    "C2": (56, 56, 64, 64, 3, 1, 1), "C3": (56, 56, 64, 128, 3, 1, 2), "C4": (56, 56, 64, 128, 1, 0, 2),
    "C5": (28, 28, 128, 128, 3, 1, 1), "C6": (28, 28, 128, 256, 3, 1, 2), "C7": (28, 28, 128, 256, 1, 0, 2),
    "C8": (14, 14, 256, 256, 3, 1, 1), "C9": (14, 14, 256, 512, 3, 1, 2), "C10": (14, 14, 256, 512, 1, 0, 2),
    "C11": (7, 7, 512, 512, 3, 1, 1),
}  # fmt: skip
"""Rows, columns, channels in and out, kernel, padding, stride of the convolutions of ResNet-18."""


def packed_resnet(env: Environment, size: int, seed: int) -> Function:
    """ResNet-18 v1 with random weights, quantised and packed.  Raises GraphError for a size that it cannot have."""
    mod, params = resnet_v1.get_workload(env.BATCH, image_shape=(3, size, size), seed=seed)
    with relay.quantize.qconfig(global_scale=8.0, skip_conv_layers=[0]):
        mod = relay.quantize.quantize(mod, params)
    return graph_pack(mod["main"], env.BATCH, env.BLOCK_OUT, env.WGT_WIDTH, device_annot=True)


def tune(args: argparse.Namespace) -> int:
    """Tune, compile, run and check ResNet-18; `args` are the options of `ansor.cli.vta`.  Gives the exit code."""
    env, seed, log = get_env(args.config), args.seed or 0, Path(args.log)
    print("Extract tasks...", flush=True)
    graph = packed_resnet(env, args.image_size, seed)
    tasks, counts = extract_from_program(graph, target=env.target), conv_workloads(graph)
    print(f"ResNet-18 v1 has {len(tasks)} convolutions to tune, which it runs {sum(counts.values())} times", flush=True)
    try:
        tune_tasks(tasks, log, args.trials, args.tuner, seed, env.config)
    except KeyboardInterrupt:
        print(f"\nstopped; everything measured is in {log}", file=sys.stderr)
        return INTERRUPTED
    print("Compile...", flush=True)
    quiet = FallbackContext()
    quiet.silent = True
    with quiet, apply_history_best(log if log.exists() else None):
        module = build(graph, config=env.config).on()
    print("Run and check...", flush=True)
    image = np.random.default_rng(seed).standard_normal((env.BATCH, 3, args.image_size, args.image_size))
    default_tiles = DeviceKernels(Device(env.config))
    with quiet:
        equal = _check(module, default_tiles, image.astype("float32"))
    print(table(layers(tasks, counts, log, env.config)))
    default_ms = sum(launch.timing().ms for _, launch in default_tiles.launches)
    print(f"inference with default tiles: {default_ms:.2f} ms on the modelled accelerator")
    print(f"inference with tuned tiles: {module.vta_seconds() * 1e3:.2f} ms on the modelled accelerator")
    print(f"what it leaves to the processor: {module.cpu_seconds * 1e3:.2f} ms on this one")
    verdict = "equals the int8 reference bit for bit" if equal else "DIFFERS from the int8 reference"
    print(f"output: {verdict}")
    return 0 if equal else 1


def _check(module: VtaModule, default_tiles: RunKernel, image: Array) -> bool:
    """Run the network with its kernels in NumPy, with those of default tiles, and as it is; whether all agree."""
    network, tuned = module.network, module.network.run_kernel
    outputs = []
    for network.run_kernel in (numpy_kernel, default_tiles, tuned):
        module.run(data=image)
        outputs.append(module.get_output(0).numpy())
    return all(np.array_equal(out, outputs[0]) for out in outputs)


def timeline(args: argparse.Namespace) -> int:
    """Print when each module of the machine works, and draw it; gives the exit code."""
    config = get_env(args.config).config
    workload = _workload(args.layer, config)
    knobs = _knobs(args.knobs) if args.knobs else _recorded(args.log, workload) or default_knobs(workload, config)
    launch = launch_layer(workload, knobs, config)
    times = launch.timing()
    drawn = spans(launch.columns, times)
    tiles = f"tiles {knobs.tile_h}x{knobs.tile_w}, {knobs.tile_ci} blocks in, {knobs.tile_co} out, "
    title = f"{args.layer}: {tiles}threads {knobs.oc_nthread} and {knobs.h_nthread}"
    print(f"{title}\n{text(drawn)}")
    busy = ", ".join(f"{module.name.lower()} {share:.0%}" for module, share in times.busy(launch.columns).items())
    print(f"{len(launch.columns)} instructions, {times.cycles:.0f} cycles, {times.ms:.3f} ms; busy: {busy}")
    if args.output:
        try:
            Path(args.output).write_text(picture(drawn, title), encoding="utf-8")
        except OSError as error:
            raise TaskError(f"{args.output}: the picture cannot be written, {error.strerror}") from error
        print(f"the picture is in {args.output}")
    return 0


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


def _recorded(log: str | None, workload: Workload) -> ConvKnobs | None:
    """The knobs of the best record; None without a log.  Raises TaskError when it has none of this layer."""
    if log is None:
        return None
    found = [knobs_of(inp.config) for inp, _ in best_pairs(load_from_file(log)) if inp.workload == workload]
    require(found, TaskError, log, "holds no valid record of this layer")
    return found[0]


def _numbers(option: str, given: str, count: int) -> list[int]:
    parts = [p.strip() for p in given.split(",")]
    ok = len(parts) == count and all(p.isascii() and p.isdecimal() for p in parts)
    names = f"; known layers are {', '.join(RESNET)}" if option == "layer" else ""
    require(ok, TaskError, option, f"{count} numbers with commas between them are needed{names}", got=given)
    return [int(p) for p in parts]
