"""`ansor vta tune`, step by step, with what it prints."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ansor.autotvm import FallbackContext, apply_history_best
from ansor.autotvm.record import is_of, load_from_file, target_text
from ansor.autotvm.task import Task
from ansor.cli.budget import total_trials
from ansor.cli.written import stopped_text
from ansor.core.host.start_up import INTERRUPTED
from ansor.core.target.target import Target
from ansor.records.of_task import other_targets

from ..core.environment import get_env
from ..graph import conv_workloads, extract_from_program
from ..network.device_kernels import DeviceKernels
from ..network.executor import VtaModule
from ..network.library import build
from ..sim import Device
from ..tuning.layer_times import layers, table
from ..tuning.tune_tasks import tune as tune_tasks
from .packed_resnet import check, packed_resnet, verdict
from .sketch_command import tune_by_sketches


def _recorded(log: Path, tasks: Sequence[Task], target: Target) -> int:
    """How many records of these tasks a log holds; it is said when there are others, of another machine."""
    held = [inp for inp, _ in load_from_file(log)] if log.exists() else []
    if text := other_targets(str(log), [target_text(inp.target) for inp in held], target):
        print(text, flush=True)
    return sum(is_of(inp, task) for inp in held for task in tasks)


def tune(args: argparse.Namespace) -> int:
    """Tune, compile, run and check ResNet-18; `args` are the options of `ansor.cli.vta`.  Gives the exit code."""
    if args.search == "sketch":
        return tune_by_sketches(args)
    env, seed, log = get_env(args.config), args.seed or 0, Path(args.log)
    print("Extract tasks...", flush=True)
    graph = packed_resnet(env, args.image_size, seed)
    tasks, counts = extract_from_program(graph, target=env.target), conv_workloads(graph)
    print(f"ResNet-18 v1 has {len(tasks)} convolutions to tune, which it runs {sum(counts.values())} times", flush=True)
    try:
        total = total_trials(args, _recorded(log, tasks, env.target))
        each = math.ceil(total / len(tasks))
        if each * len(tasks) > total:
            print(f"{total} trials are {each} for each of {len(tasks)} convolutions, rounded up", flush=True)
        tune_tasks(tasks, log, each, args.tuner, seed, env.config, args.time_limit)
    except KeyboardInterrupt:
        print(f"\n{stopped_text(log)}", file=sys.stderr)
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
        equal = check(module, default_tiles, image.astype("float32"))
    print(table(layers(tasks, counts, log, env.config)))
    _print_times(module, default_tiles)
    return verdict(equal)


def _print_times(module: VtaModule, default_tiles: DeviceKernels) -> None:
    default_ms = sum(launch.timing().ms for _, launch in default_tiles.launches)
    print(f"inference with default tiles: {default_ms:.2f} ms on the modelled accelerator")
    print(f"inference with tuned tiles: {module.vta_seconds() * 1e3:.2f} ms on the modelled accelerator")
    print(f"what it leaves to the processor: {module.cpu_seconds * 1e3:.2f} ms on this one")
