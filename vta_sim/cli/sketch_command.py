"""`ansor vta tune --search sketch`, step by step, with what it prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from ansor.cli.budget import total_trials
from ansor.cli.written import stopped_text
from ansor.core.host.start_up import INTERRUPTED
from ansor.core.tasks.task import SearchTask
from ansor.records.dispatch import ApplyHistoryBest
from ansor.records.lines import load_records
from ansor.records.of_task import is_of
from relay_lite import reference
from relay_lite.ir import Function

from ..core.environment import Environment, get_env
from ..graph.machine_kernel import MachineKernel
from ..graph.pack_whole import pack_whole
from ..graph.packed_layout import Blocks
from ..graph.split import split
from ..network.executor import VtaModule
from ..sketch.draft import Drafts
from ..tuning.tune_sketches import kernel_tasks, tune_sketches
from .packed_resnet import verdict
from .whole_network import quantized_network


def tune_by_sketches(args: argparse.Namespace) -> int:
    """Tune every kernel of a network on integers, compile, run and check it.  Gives the exit code."""
    env, seed, log = get_env(args.config), args.seed or 0, Path(args.log)
    print("Extract tasks...", flush=True)
    network = quantized_network(args.network, env.BATCH, args.image_size, seed)
    graph = pack_whole(network, Blocks(env.BATCH, env.BLOCK_OUT))
    runs = split(graph).kernels
    tasks = kernel_tasks(runs, env.target)
    print(f"{args.network} has {len(tasks)} kernels to tune, which it runs {sum(runs.values())} times", flush=True)
    try:
        left = total_trials(args, _recorded(log, tasks)) - _recorded(log, tasks)
        if left > 0:
            tune_sketches(tasks, runs, log, left, seed, args.time_limit)
    except KeyboardInterrupt:
        print(f"\n{stopped_text(log)}", file=sys.stderr)
        return INTERRUPTED
    return _run(env, network, graph, log, args.image_size, seed)


def _recorded(log: Path, tasks: Mapping[MachineKernel, SearchTask]) -> int:
    """How many records of these tasks a log holds."""
    held = [inp for inp, _ in load_records(str(log))] if log.exists() else []
    return sum(is_of(inp, task) for inp in held for task in tasks.values())


def _run(env: Environment, network: Function, graph: Function, log: Path, size: int, seed: int) -> int:
    """Compile with the best records, and drafts where there is none, run, compare."""
    print("Compile, run and check...", flush=True)
    image = np.random.default_rng(seed).standard_normal((env.BATCH, 3, size, size)).astype("float32")
    with ExitStack() as stack:
        stack.enter_context(Drafts())
        if log.exists():
            stack.enter_context(ApplyHistoryBest(str(log)))
        module = VtaModule(graph, env.config, chained=True)
        module.run(data=image)
    launches = len(module.chains.launches)
    print(f"inference: {module.vta_seconds() * 1e3:.2f} ms on the modelled accelerator, in {launches} launches")
    print(f"what it leaves to the processor: {module.cpu_seconds * 1e3:.2f} ms on this one")
    return verdict(np.array_equal(module.get_output(0).numpy(), reference.run(network, {"data": image})))
