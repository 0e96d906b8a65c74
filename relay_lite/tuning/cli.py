"""The command `ansor tune-network`, step by step, with what it prints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from ansor.cli.budget import all_done, early_stopping, settle, total_trials
from ansor.cli.devices import check_devices, hardware_of
from ansor.cli.written import stopped_text
from ansor.core.device.backend import backend, on_device
from ansor.core.errors import BudgetError
from ansor.core.files.sealed_folder import require_new
from ansor.core.host.start_up import INTERRUPTED
from ansor.core.target.target import STRICT, Target
from ansor.core.tasks.task import SearchTask
from ansor.core.values.checks import counted
from ansor.measure.noise import unsteady
from ansor.policy.search_failure import SearchFailed
from ansor.records.recorder import RecordToFile
from te_lite.errors import require

from ..compiler.optimize import extract_tasks
from ..frontend.onnx.fixed import fixed_from_text
from ..ir.errors import GraphError
from ..runtime.files import NETWORK
from ..runtime.graph_executor import GraphModule
from .network import SUFFIX, Network, from_program, in_precision, load_network, open_inputs
from .network_times import network_times, times_text
from .tune_network import Tuned, check, compile_best, network_runner, progress, tune

REPEAT, MIN_REPEAT_MS = 3, 500


def tune_network(args: argparse.Namespace) -> int:
    """Tune, compile, check and measure a network; `args` are the options of `ansor.cli.network`.

    Gives the exit code.  Raises TeError, one sentence, for whatever cannot be done.
    """
    target = Target(args.target)
    if args.export is not None:
        require_new(NETWORK, args.export)
    backend(target.kind.name).check(str(target))
    target = on_device(target)
    check_devices(target.kind.name, args.devices)
    seed = args.seed or 0
    network = _network(args, seed)
    network, target = in_precision(network, target, args.precision or target.precision)
    suffix = "" if network.precision == STRICT else f"-{network.precision}"
    log = Path(args.log or f"{network.name}-{target.kind.name}{suffix}.json")

    def say(text: str) -> None:
        if args.verbose:
            print(text, flush=True)

    say("Extract tasks...")
    tasks, weights = extract_tasks(network.graph, network.params, target, hardware_of(target))
    known = progress(log, tasks)
    done, new = sum(s.trials for s in known), sum(s.rounds == 0 for s in known)
    settle(args, len(tasks), done)
    args.trials = total_trials(args, done)
    require_enough(args.trials, done, new)
    held = f"{counted(len(tasks), 'task')}; {log} holds {counted(done, 'trial')}"
    say(f"{network.name} has {held}, {args.trials} are asked for")
    if done >= args.trials > 0:
        say(all_done(done, str(log)))
    say("Tune...")
    try:
        failures = _tune(tasks, weights, log, target, args).failures
    except KeyboardInterrupt:
        print(stopped_text(log), file=sys.stderr)
        return INTERRUPTED
    say("Compile...")
    module = compile_best(network, target, log if log.is_file() else ())
    say("Check...")
    print(f"{network.name}: {check(module, network, np.random.default_rng(seed))}")
    say("Evaluate inference time cost...")
    _evaluate(network.name, module, tasks, weights, log)
    if args.export is not None:
        module.module.library.export(args.export)
    for failure in failures:
        print(f"{failure}; it got the default schedule", file=sys.stderr)
    return SearchFailed.exit_code if failures else 0


def require_enough(trials: int, done: int, new: int) -> None:
    """Raise BudgetError where `trials` in all are fewer than the `new` tasks without a record need, one each."""
    need = f"each of the {new} tasks without a record needs a trial: --more {new} or --trials {done + new} is the least"
    ok = trials <= done or trials >= done + new
    require(ok, BudgetError, "--trials", f"{need}, --trials 0 compiles without any", trials=trials, in_the_log=done)


def _network(args: argparse.Namespace, seed: int) -> Network:
    if args.program is not None:
        return from_program(args.program, args.torch.rpartition(":")[2], args.layout)
    fixed = fixed_from_text(args.fix)
    try:
        return load_network(args.network, args.batch_size, args.layout, args.image_size, args.shape, seed, fixed)
    except GraphError:
        if args.network.endswith(SUFFIX) and len(args.image_size or ()) <= 2:
            _require_closed(args, fixed)
        raise


def _require_closed(args: argparse.Namespace, fixed: Mapping[str, Any]) -> None:
    """Raise GraphError, in terms of the options, for an ONNX model whose inputs they leave open."""
    left = open_inputs(Path(args.network), args.batch_size, args.image_size, {**args.shape, **fixed})
    example = " ".join([f"--shape {name}=1,3,8,8" for name in left])
    law = f"extents of its inputs are open, say them by {example} (or by --batch-size and --image-size, of pictures)"
    require(not left, GraphError, args.network, law, **left)


def _tune(
    tasks: Sequence[SearchTask], weights: Sequence[int], log: Path, target: Target, args: argparse.Namespace
) -> Tuned:
    with closing(network_runner(target, args.devices)) as runner:
        return tune(
            tasks, weights, log, args.trials, seed=args.seed, time_limit=args.time_limit, verbose=args.verbose,
            runner=runner, early_stopping=early_stopping(args),
        )  # fmt: skip


def _evaluate(
    name: str, module: GraphModule, tasks: Sequence[SearchTask], weights: Sequence[int], log: Path
) -> None:  # fmt: skip
    """Print how long a run takes, and what each task takes of it; the log gets a line on that."""
    result = module.benchmark(repeat=REPEAT, min_repeat_ms=MIN_REPEAT_MS)
    print(result)
    if doubt := unsteady([result.results], "so that the time of a run is not to be trusted"):
        print(doubt)
    times = network_times(module, tasks, weights, progress(log, tasks), result.median)
    print(times_text(times))
    if log.is_file():
        seconds, others = [one.measured for one in times.tasks], sum(times.others.values())
        RecordToFile(log).network_ran(name, tasks, weights, seconds, others, result.results)
