"""The `ansor` command.

Exit codes: 0 done; 1 no valid program; 2 bad input; 3 a log that cannot be written; 4 measurement cannot go on;
130 stopped by Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from te_lite.errors import TeError, require
from te_lite.verify.verify_reads import require_reads_inside

from ..core.device.backend import backend, on_device
from ..core.errors import AnsorError, NoRecordError, TaskError
from ..core.host.hints import ansor, one_command, version_of
from ..core.host.start_up import INTERRUPTED, imported
from ..core.target.target import PRECISIONS, Target
from ..core.tasks.catalog import CATALOG
from ..core.tasks.measure_values import MeasureInput
from ..core.tasks.task import SearchTask
from ..core.tasks.workloads import key_text
from ..core.values.checks import checked_seed
from ..cost_model import XGBModel
from ..measure.progress import seconds_text
from ..policy.sketch_policy import SketchPolicy
from ..policy.tuning_options import TuningOptions, usual_runner
from ..records.best import load_best_record
from ..records.lines import RecordReader, validated_records
from ..records.noted_records import first_failure, known_baselines
from ..records.of_task import is_of
from ..records.recorder import RecordToFile
from ..records.store import best_stored
from . import bench_search as cli_bench_search
from . import best as cli_best
from . import budget as cli_budget
from . import dataset as cli_dataset
from . import devices as cli_devices
from . import doctor as cli_doctor
from . import draw as cli_draw
from . import exercise as cli_exercise
from . import export as cli_export
from . import log as cli_log
from . import network as cli_network
from . import remeasure as cli_remeasure
from . import report as cli_report
from . import store as cli_store
from . import user_code
from . import vta as cli_vta
from .compare import LIBRARIES, NUMPY, TORCH, compare
from .extensions import add_extensions, chosen_by
from .said_once import said_once
from .torch_side import check_torch
from .workload import CATALOGUE, add_workload, workload_key
from .written import checked_log, stopped_text

MODULES = (
    cli_network, cli_vta, cli_best, cli_export, cli_log, cli_remeasure, cli_report, cli_draw, cli_store, cli_dataset,
    cli_bench_search, cli_exercise, cli_devices, cli_doctor,
)  # fmt: skip
"""The other commands, in the order of the help."""
ARCHITECTURE = "arch"
"""The option of a target that says what to compile for, so that no device is asked."""
SEED = "makes the first candidates repeatable; later ones also follow from the times that were measured"
AFRESH = "do not go on from what the log holds: all that --trials asks for is measured afresh, and added to it"
PRECISION = (
    "strict (default); fp32x3: tensor cores multiply floats in two parts, about as exact; tf32: cut to 10 bits (GPUs)"
)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ansor", description="Write fast programs by searching for them.")
    parser.set_defaults(modules=[], extensions=None)
    parser.add_argument("--version", action="version", version=f"ansor {version_of('ansor')}")
    commands = parser.add_subparsers(dest="command", required=True)

    tuning = commands.add_parser(
        "tune",
        help="search for a fast program of one workload",
        epilog=CATALOGUE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_workload(tuning)
    tuning.add_argument("--target", default="c", help="what to compile for (default: c)")
    tuning.add_argument("--precision", choices=PRECISIONS, help=PRECISION)
    cli_budget.add_budget(tuning, 64, "programs")
    cli_budget.add_effort(tuning)
    add_extensions(tuning)
    tuning.add_argument("--devices", help=cli_devices.OPTION)
    tuning.add_argument(
        "--log", help="where records go (default: WORKLOAD.json or FUNCTION.json); a log that exists is continued"
    )
    tuning.add_argument("--no-resume", dest="resume", action="store_false", help=AFRESH)
    tuning.add_argument("--seed", type=int, help=SEED)
    tuning.add_argument("--verbose", type=int, choices=(0, 1, 2), default=1, help="0 silent, 1 progress, 2 everything")
    text = "then check and time the best program beside the untuned one and NumPy; with `torch` beside PyTorch, too"
    tuning.add_argument("--compare", nargs="?", const=NUMPY, choices=LIBRARIES, help=text)

    user_code.add_import(tuning)
    tuning.set_defaults(run=lambda args: tune(args))
    for module in MODULES:
        module.add_parser(commands)
    return parser


def _recorded(log: Path, task: SearchTask) -> int:
    """How many records of a task a log holds."""
    return sum(is_of(inp, task) for inp, _ in RecordReader(log)) if log.is_file() else 0


def _show_choice(policy: SketchPolicy, log: Path | None) -> int:
    """Print the program that the store has, else the one that the model likes best, which nobody measured."""
    task = policy.task
    stored = best_stored(task.compute_dag, task.target, task.layout_rewrite_option)
    if stored is not None:
        print(f"the best of the store for {task.title} on {task.target}, {seconds_text(stored[1].cost)}:")
        print(task.compute_dag.print_python_code_from_state(MeasureInput(task, steps=stored[0].steps).state))
        return 0
    if log is not None and log.is_file() and log.stat().st_size > 0:
        policy.continue_from(log, list(validated_records(log)))
    state = policy.choice()
    if state is None:
        raise NoRecordError(f"{task.title}: every program is measured, the model has none to choose")
    print(f"the model's choice for {task.title} on {task.target}, not measured (--trials 0):")
    print(task.compute_dag.print_python_code_from_state(state))
    return 0


def tune(args: argparse.Namespace) -> int:
    """Search; the log is continued when it has records of this task."""
    cli_budget.check_budget(args)
    if args.seed is not None:
        checked_seed("--seed", args.seed)
    law = "the program must be measured, and --trials 0 measures none; use --trials 1 or more"
    none = cli_budget.measures_nothing(args)
    require(not none or args.compare is None, TaskError, "--compare", law)
    key = workload_key(args)
    target = Target(args.target)
    asks_device = not none or ARCHITECTURE not in target.attrs
    if asks_device:
        backend(target.kind.name).check(str(target))
    target = on_device(target)
    hardware = cli_devices.hardware_of(target) if asks_device else None
    task = SearchTask(workload_key=key, target=target, precision=args.precision, hardware_params=hardware)
    devices = cli_devices.devices_of(args.devices)
    cli_devices.check_devices(target.kind.name, devices)
    if args.compare == TORCH:
        check_torch(task)
    log = checked_log(args.log or f"{args.workload.rpartition(':')[2]}.json")
    policy = SketchPolicy(task, XGBModel(seed=args.seed), seed=args.seed, verbose=args.verbose)
    require_reads_inside(task.compute_dag)
    if none:
        return _show_choice(policy, log if args.resume else None)
    trials = cli_budget.new_trials(args, _recorded(log, task) if args.resume else 0, str(log))
    runner = usual_runner(target.kind.name, devices, args.time_limit)
    options = TuningOptions(
        num_measure_trials=trials,
        num_measures_per_round=min(64, max(16, trials // 8)),
        verbose=args.verbose,
        runner=runner,
        measure_callbacks=[RecordToFile(log)],
        time_limit=args.time_limit,
        early_stopping=cli_budget.early_stopping(args),
        resume=args.resume,
    )
    try:
        if trials:
            task.tune(options, search_policy=policy)
    except KeyboardInterrupt:
        print(stopped_text(log), file=sys.stderr)
        return INTERRUPTED
    finally:
        runner.close()
    inp, res = load_best_record(log, key, task.target)
    if inp is None or res is None:
        told = "" if trials and args.verbose else first_failure(log, task)
        raise NoRecordError(f"{log}: no valid program was found for {key_text(key)}{told}")
    print(f"best of {log}: {cli_best.summary_text(inp, res, known_baselines(log))}")
    if args.compare:
        compare(task, log, np.random.default_rng(args.seed), args.compare)
    print(f"see it with: {ansor('best', str(log), '--print', 'schedule')}")
    return 0


def _with_library(words: Sequence[str]) -> list[str]:
    """The words of a command, where a workload right after `--compare` is no library to compare with."""
    pairs = zip(words, [*words[1:], ""][: len(words)], strict=True)
    return [f"{w}={NUMPY}" if w == "--compare" and (n in CATALOG or ":" in n) else w for w, n in pairs]


def _command(args: argparse.Namespace) -> int:
    for module in args.modules:
        user_code.run_module(module)
    with chosen_by(args):
        code: int = args.run(args)
    return code


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; errors are one sentence on the error stream."""
    try:
        args = _parser().parse_args(_with_library(sys.argv[1:] if argv is None else argv))
        with said_once(), one_command():
            return _command(args)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except TeError as error:
        print(f"ansor: {error}", file=sys.stderr)
        return error.exit_code if isinstance(error, AnsorError) else AnsorError.exit_code


def run() -> None:
    """The entry point of the `ansor` command."""
    imported()
    sys.exit(main())
