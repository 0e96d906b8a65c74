"""Real models of torchvision, timm and transformers, through torch's exporters: which pass, and why others do not.

    python -m benchmarks.zoo [--model NAME]... [--exporter NAME]... [--exported FOLDER]
        [--jobs N] [--again] [--json FILE]
    python -m benchmarks.zoo --export-only FOLDER [--full-size] [--model NAME]... [--exporter NAME]...

Needs the extra `zoo` (torch, torchvision, timm, transformers, onnxscript); nothing is downloaded.  Every model is made
at a small size with random live weights, exported, imported, compiled for `c` with default programs, and run on two
inputs.  It passes when no output is further from onnxruntime's (with its own optimizations) than 1e-4 of the largest
value of that output, and when the results of the two inputs differ by more than 1e-2 of it.  The default programs are
emitted for CUDA, too, which takes no GPU.

A model runs in a process of its own with a time limit: one that crashes or hangs costs itself only.  Results are
written to `--json` after every model; those that are there already are not made again, unless `--again`.
`--export-only` writes `MODEL-EXPORTER.onnx` into a folder and does nothing else; `--exported` reads what is in a folder
instead of exporting it, and keeps there what it exports.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.zoo_check import EXPORTERS, LIMIT, Result, export, exported_path, random_inputs
from benchmarks.zoo_models import MODELS, live_model

OUTCOMES = ("pass", "refused", "wrong", "vacuous", "crashed", "not exported")
PACKAGES = ("torch", "torchvision", "timm", "transformers", "onnxscript", "onnx", "onnxruntime")
SECONDS = 900
Results = dict[str, dict[str, Result]]


def check_model(name: str, exporters: Sequence[str], folder: Path, seconds: float) -> list[Result]:
    """What becomes of a model from each exporter, in a process that is started again after one that ended it."""
    found: list[Result] = []
    while left := exporters[len(found) :]:
        lines, ended = _lines([str(folder), name, *left], seconds)
        found += [Result(**json.loads(line)) for line in lines]
        if len(lines) < len(left):
            found.append(Result(left[len(lines)], "crashed", ended))
    return found


def _lines(arguments: Sequence[str], seconds: float) -> tuple[list[str], str]:
    """The lines that a process wrote, and how it ended."""
    command = [sys.executable, "-m", "benchmarks.zoo_check", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        text = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return _whole(text), f"it took more than {seconds:.0f} s"
    said = done.stderr.strip().splitlines()
    return _whole(done.stdout), f"exit status {done.returncode}: {said[-1] if said else ''}"


def _whole(text: str) -> list[str]:
    return [line for line in text[: text.rfind("\n") + 1].splitlines() if line.startswith("{")]


def check_all(models: Sequence[str], exporters: Sequence[str], folder: Path, options: argparse.Namespace) -> Results:
    """Check what the file `options.json` lacks, and write it there; `options.jobs` models at a time."""
    results = _read(options.json)

    def check(name: str) -> tuple[list[Result], float]:
        known = {} if options.again else results.get(name, {})
        start = time.perf_counter()
        made = check_model(name, [e for e in exporters if e not in known], folder, options.time_limit)
        return made, time.perf_counter() - start

    with ThreadPoolExecutor(options.jobs) as pool:
        for name, (made, took) in zip(models, pool.map(check, models), strict=True):
            results[name] = {**results.get(name, {}), **{r.exporter: r for r in made}}
            print(f"{name}: {', '.join(r.outcome for r in made) or 'known'} ({took:.0f} s)", flush=True)
            if made:
                report.write_json(options.json, _figures(results))
    return results


def _read(file: str | None) -> Results:
    if file is None or not Path(file).exists():
        return {}
    models = json.loads(Path(file).read_text())["figures"]["models"]
    return {name: {e: Result(**r) for e, r in found.items()} for name, found in models.items()}


def _figures(results: Results) -> dict[str, Any]:
    ordered = {name: results[name] for name in MODELS if name in results}
    return {
        "limit": LIMIT,
        "packages": {name: version(name) for name in PACKAGES},
        "exporters": {e: _counts([found[e] for found in ordered.values() if e in found]) for e in EXPORTERS},
        "models": {name: {e: asdict(r) for e, r in sorted(found.items())} for name, found in ordered.items()},
    }


def _counts(results: Sequence[Result]) -> Mapping[str, int]:
    counts = Counter(r.outcome for r in results)
    cuda = sum(r.cuda == "ok" for r in results)
    return {**{o: counts[o] for o in OUTCOMES if counts[o]}, "emitted for cuda": cuda}


def _print(results: Results, models: Sequence[str], exporters: Sequence[str]) -> None:
    rows = [[name, *[_cell(results[name].get(e)) for e in exporters]] for name in models]
    print()
    report.table(rows, ["model", *exporters])
    print()
    for name in models:
        for r in (results[name][e] for e in exporters if e in results[name]):
            if r.outcome != "pass":
                print(f"{name} {r.exporter}: {r.outcome}: {r.reason}")
            elif r.cuda != "ok":
                print(f"{name} {r.exporter}: for cuda {r.cuda}")
    counts = {e: _counts([results[name][e] for name in models if e in results[name]]) for e in exporters}
    for e, count in counts.items():
        print(f"{e}: {', '.join(f'{n} {outcome}' for outcome, n in count.items())}")


def _cell(found: Result | None) -> str:
    if found is None:
        return ""
    return f"{found.error:.0e}" if found.outcome == "pass" else found.outcome


def export_only(folder: Path, models: Sequence[str], exporters: Sequence[str], full_size: bool) -> None:
    """Write the models into a folder."""
    for name in models:
        model, inputs = live_model(name, full_size)
        for exporter in exporters:
            path = exported_path(folder, name, exporter)
            reason = export(model, random_inputs(inputs, 1), path, exporter)
            print(f"{path}: {reason or 'written'}", flush=True)


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--model", action="append", choices=MODELS, metavar="NAME", help="one of the models (all)")
    p.add_argument("--exporter", action="append", choices=EXPORTERS, help="one of the exporters (all)")
    p.add_argument("--again", action="store_true", help="also make what the file of --json holds already")
    p.add_argument("--jobs", type=int, default=1, metavar="N", help="how many models at a time (1)")
    p.add_argument("--time-limit", type=float, default=SECONDS, metavar="SECONDS", help="of one model")
    p.add_argument("--exported", type=Path, metavar="FOLDER", help="where ONNX files are, and where they are kept")
    p.add_argument("--export-only", type=Path, metavar="FOLDER", help="write the ONNX files and stop")
    p.add_argument("--full-size", action="store_true", help="of --export-only: images of 224 x 224, all layers")
    options = p.parse_args()
    report.require_packages(*PACKAGES)
    models, exporters = options.model or list(MODELS), options.exporter or list(EXPORTERS)
    folder = options.export_only or options.exported
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    if options.export_only is not None:
        export_only(folder, models, exporters, options.full_size)
        return
    with tempfile.TemporaryDirectory() as fresh:
        results = check_all(models, exporters, folder or Path(fresh), options)
    _print(results, models, exporters)


if __name__ == "__main__":
    report.run(main)
