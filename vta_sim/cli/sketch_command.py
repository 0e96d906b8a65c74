"""`ansor vta tune --search sketch`, step by step, with what it prints."""

from __future__ import annotations

import argparse
import math
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ansor.autotvm import FallbackContext
from ansor.cli.budget import total_trials
from ansor.cli.written import stopped_text
from ansor.core.start_up import INTERRUPTED
from ansor.core.task import SearchTask
from ansor.records.dispatch import ApplyHistoryBest
from ansor.records.lines import load_records
from ansor.records.of_task import is_of

from ..core.environment import Environment, get_env
from ..graph.machine_kernel import MachineKernel
from ..graph.split import VtaStep
from ..network.device_kernels import DeviceKernels
from ..network.executor import VtaModule
from ..sim import Device
from ..sketch.draft import Drafts
from ..tuning.tune_sketches import kernel_tasks, tune_sketches
from .packed_resnet import check, packed_resnet, verdict


def tune_by_sketches(args: argparse.Namespace) -> int:
    """Tune every kernel of ResNet-18, compile, run and check it.  Gives the exit code."""
    env, seed, log = get_env(args.config), args.seed or 0, Path(args.log)
    print("Extract tasks...", flush=True)
    module = VtaModule(packed_resnet(env, args.image_size, seed), env.config)
    runs = Counter(step.kernel for step in module.network.plan.steps if isinstance(step, VtaStep))
    tasks = kernel_tasks(runs, env.target)
    print(f"ResNet-18 v1 has {len(tasks)} kernels to tune, which it runs {sum(runs.values())} times", flush=True)
    try:
        left = total_trials(args, _recorded(log, tasks)) - _recorded(log, tasks)
        if left > 0:
            tune_sketches(tasks, runs, log, left, seed, args.time_limit)
    except KeyboardInterrupt:
        print(f"\n{stopped_text(log)}", file=sys.stderr)
        return INTERRUPTED
    return _run(env, module, runs, log, args.image_size, seed)


def _recorded(log: Path, tasks: Mapping[MachineKernel, SearchTask]) -> int:
    """How many records of these tasks a log holds."""
    held = [inp for inp, _ in load_records(str(log))] if log.exists() else []
    return sum(is_of(inp, task) for inp in held for task in tasks.values())


def _run(
    env: Environment, module: VtaModule, runs: Mapping[MachineKernel, int], log: Path, image_size: int, seed: int
) -> int:
    """Compile with the best records, and drafts where there is none; run, compare, and print the times."""
    print("Compile, run and check...", flush=True)
    templates = DeviceKernels(Device(env.config))
    image = np.random.default_rng(seed).standard_normal((env.BATCH, 3, image_size, image_size))
    quiet = FallbackContext()
    quiet.silent = True
    with quiet:
        for kernel in runs:
            templates.module(kernel)
        with ExitStack() as stack:
            stack.enter_context(Drafts())
            if log.exists():
                stack.enter_context(ApplyHistoryBest(str(log)))
            for kernel in runs:
                module.kernels.module(kernel)
            equal = check(module, templates, image.astype("float32"))
    _print_table(runs, templates, module.kernels)
    print(f"what it leaves to the processor: {module.cpu_seconds * 1e3:.2f} ms on this one")
    return verdict(equal)


def _print_table(runs: Mapping[MachineKernel, int], templates: DeviceKernels, tuned: DeviceKernels) -> None:
    """Milliseconds of each kernel with default tiles and with its sketch, and of the network."""
    times = [{k: launch.timing().ms for k, launch in kernels.launches} for kernels in (templates, tuned)]
    print(f"{'kernel':<44}{'runs':>5}{'default tiles ms':>18}{'sketches ms':>13}")
    for kernel, count in runs.items():
        print(f"{described(kernel):<44}{count:>5}{times[0][kernel]:>18.3f}{times[1][kernel]:>13.3f}")
    totals = [math.fsum(count * found[kernel] for kernel, count in runs.items()) for found in times]
    print(f"{'all kernels':<44}{sum(runs.values()):>5}{totals[0]:>18.3f}{totals[1]:>13.3f}")


def described(kernel: MachineKernel) -> str:
    """Sizes of a kernel: rows x columns x channels, and what a convolution makes of them."""
    _, blocks, h, w, _, block = kernel.inputs[0].shape
    size = f"{h}x{w}x{blocks * block}"
    if kernel.workload is None:
        return f"{size}, {len(kernel.operations)} operations"
    co, _, kh, kw, _, _ = kernel.inputs[1].shape
    return f"{size} -> {co * block}, {kh}x{kw}/{kernel.workload[3][0]}, {len(kernel.operations)} operations"
