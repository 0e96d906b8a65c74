"""The `ansor` command: tune, tune-network, vta, best, distill, devices, doctor.

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

from te_lite.errors import TeError

from ..core.errors import AnsorError, NoRecordError, TaskError
from ..core.measure_values import MeasureInput, MeasureResult
from ..core.seeds import checked_seed
from ..core.target import Target
from ..core.task import SearchTask
from ..core.workloads import key_text
from ..cost_model import XGBModel
from ..measure.local import LocalRunner
from ..measure.progress import rate_text, seconds_text
from ..policy.sketch_policy import SketchPolicy
from ..policy.tuning_options import TuningOptions
from ..records.lines import (
    RecordReader,
    RecordToFile,
    believed,
    believed_records,
    best_records,
    distill_record_file,
    load_best_record,
)
from . import devices as cli_devices
from . import network as cli_network
from . import vta as cli_vta
from .catalog import CATALOG, register_catalog
from .compare import compare
from .doctor import doctor

INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ansor", description="Write fast programs by searching for them.")
    commands = parser.add_subparsers(dest="command", required=True)

    tune = commands.add_parser("tune", help="search for a fast program of one workload")
    tune.add_argument("workload", choices=CATALOG, metavar="WORKLOAD", help=", ".join(CATALOG))
    tune.add_argument("--shape", help="numbers separated by commas; without it, a usual shape")
    tune.add_argument("--target", default="c", help="what to compile for (default: c)")
    trials = "how many programs to measure, beside those that the log holds already (default: 64)"
    tune.add_argument("--trials", type=int, default=64, help=trials)
    tune.add_argument("--seconds", type=float, help="stop after so many seconds")
    tune.add_argument("--devices", help=cli_devices.OPTION)
    tune.add_argument("--log", help="where records go (default: WORKLOAD.json); a log that exists is continued")
    tune.add_argument("--seed", type=int, help="makes the sequence of candidates repeatable")
    tune.add_argument("--verbose", type=int, choices=(0, 1, 2), default=1, help="0 silent, 1 progress, 2 everything")
    tune.add_argument("--compare", action="store_true", help="then check and time the best program beside NumPy")

    cli_network.add_parser(commands)
    cli_vta.add_parser(commands)

    best = commands.add_parser("best", help="show the best program of each workload in a log")
    best.add_argument("log")
    best.add_argument("--print", dest="mode", choices=("schedule", "c", "cuda"), help="also print the program")

    distill = commands.add_parser("distill", help="keep only the best record of each workload")
    distill.add_argument("log")
    distill.add_argument("-o", "--output", help="the file to write (default: LOG.best.json)")

    cli_devices.add_parser(commands)
    commands.add_parser("doctor", help="say what this installation can do")
    return parser


def _numbers(text: str) -> list[int]:
    parts = text.replace("x", ",").split(",")
    if not all(p.strip().isdecimal() for p in parts):
        raise TaskError(f"--shape: numbers separated by commas are needed, got {text!r}")
    return [int(p) for p in parts]


def tune(args: argparse.Namespace) -> int:
    """Search; the log is continued when it has records of this task."""
    if args.seed is not None:
        checked_seed("--seed", args.seed)
    entry = CATALOG[args.workload]
    key = entry.key(_numbers(args.shape) if args.shape else entry.default)
    task = SearchTask(workload_key=key, target=Target(args.target))
    log = Path(args.log or f"{args.workload}.json")
    recorder = RecordToFile(log)
    model = XGBModel(seed=args.seed)
    policy = SketchPolicy(task, model, seed=args.seed, verbose=args.verbose)
    if log.stat().st_size > 0:
        records = list(believed_records(log))
        policy.preload_measured_states(log, records)
        model.update([inp for inp, _ in records], [res for _, res in records])
    runner = LocalRunner(devices=cli_devices.devices_of(args.devices))
    options = TuningOptions(
        num_measure_trials=args.trials,
        num_measures_per_round=min(64, max(16, args.trials // 8)),
        verbose=args.verbose,
        runner=runner,
        measure_callbacks=[recorder],
        time_limit=args.seconds,
    )
    try:
        task.tune(options, search_policy=policy)
    except KeyboardInterrupt:
        print(f"stopped; everything measured is in {log}", file=sys.stderr)
        return INTERRUPTED
    finally:
        runner.close()
    inp, res = load_best_record(log, key, task.target)
    if inp is None or res is None:
        raise NoRecordError(f"{log}: no valid program was found for {key_text(key)}")
    print(f"best of {log}: {_summary(inp, res)}")
    if args.compare:
        compare(task, log, np.random.default_rng(args.seed))
    print(f"see it with: ansor best {log} --print schedule")
    return 0


def _summary(inp: MeasureInput, res: MeasureResult) -> str:
    text = f"{key_text(inp.task.workload_key)} for {inp.task.target}: {seconds_text(res.cost)}"
    try:
        rate = rate_text(inp.task.compute_dag.flop_ct, res.cost)
    except TeError:
        rate = ""
    return f"{text}  {rate}".rstrip()


def best(args: argparse.Namespace) -> int:
    """Print the best record of each target and workload."""
    reader = RecordReader(args.log)
    records = believed(reader, args.log)
    found = best_records(records)
    if not found:
        raise NoRecordError(f"{args.log}: holds no valid record. {reader.complaint() or records.complaint()}".rstrip())
    for (kind, _), (inp, res) in found.items():
        print(_summary(inp, res))
        if args.mode == "schedule":
            print(inp.task.compute_dag.print_python_code_from_state(inp.state))
        elif args.mode is not None:
            if args.mode != kind:
                raise TaskError(f"--print {args.mode}: the record is for target {kind!r}")
            print(inp.task.source(inp.state))
    return 0


def distill(args: argparse.Namespace) -> int:
    """Write the best records to a file of their own."""
    output = args.output or f"{args.log}.best.json"
    count = distill_record_file(args.log, output)
    print(f"{output}: {count} {'record' if count == 1 else 'records'}")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; errors are one sentence on the error stream."""
    args = _parser().parse_args(argv)
    register_catalog()
    try:
        match args.command:
            case "tune":
                return tune(args)
            case cli_network.NAME:
                return cli_network.tune_network(args)
            case cli_vta.NAME:
                return cli_vta.vta(args)
            case "best":
                return best(args)
            case "distill":
                return distill(args)
            case cli_devices.NAME:
                return cli_devices.devices()
        return doctor()
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
    sys.exit(main())
