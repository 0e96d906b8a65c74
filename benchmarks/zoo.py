"""Real models of torchvision, timm and transformers, through torch's exporters: which pass, and why others do not.

    python -m benchmarks.zoo [--model NAME]... [--exporter NAME]... [--again] [--json FILE]
    python -m benchmarks.zoo --export-only FOLDER [--full-size] [--model NAME]... [--exporter NAME]...

Needs the extra `zoo` (torch, torchvision, timm, transformers, onnxscript); nothing is downloaded.  Every model is made
at a small size with random live weights, exported, imported, compiled for `c` with default programs, and run on two
inputs.  It passes when no output is further from onnxruntime's (with its own optimizations) than 1e-4 of the largest
value of that output, and when the results of the two inputs differ by more than 1e-2 of it.  The default programs are
emitted for CUDA, too, which takes no GPU.

A model runs in a process of its own with a time limit: one that crashes or hangs costs itself only.  Results are written
to `--json` after every model; those that are there already are not made again, unless `--again`.
`--export-only` writes `MODEL-EXPORTER.onnx` into a folder and does nothing else.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.zoo_check import EXPORTERS, LIMIT, Result, export
from benchmarks.zoo_models import MODELS, live_model

OUTCOMES = ("pass", "refused", "wrong", "vacuous", "crashed", "not exported")
PACKAGES = ("torch", "torchvision", "timm", "transformers", "onnxscript", "onnx", "onnxruntime")
SECONDS = 900
Results = dict[str, dict[str, Result]]


def check_model(name: str, exporters: Sequence[str], seconds: float) -> list[Result]:
    """What becomes of a model from each exporter, in a process that is started again after one that ended it."""
    found: list[Result] = []
    while left := exporters[len(found) :]:
        lines, ended = _lines(name, left, seconds)
        found += [Result(**json.loads(line)) for line in lines]
        if ended:
            found.append(Result(left[len(lines)], "crashed", ended))
    return found


def _lines(name: str, exporters: Sequence[str], seconds: float) -> tuple[list[str], str]:
    """The lines that a process wrote, and how it ended when it wrote too few."""
    command = [sys.executable, "-m", "benchmarks.zoo_check", name, *exporters]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        text = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        return _whole(text), f"it took more than {seconds:.0f} s"
    lines, said = _whole(done.stdout), done.stderr.strip().splitlines()
    ended = f"exit status {done.returncode}: {said[-1] if said else ''}"
    return lines, "" if len(lines) == len(exporters) else ended


def _whole(text: str) -> list[str]:
    return [line for line in text[: text.rfind("\n") + 1].splitlines() if line.startswith("{")]


def check_all(
    models: Sequence[str], exporters: Sequence[str], file: str | None, again: bool, seconds: float
) -> Results:
    """Check what `file` lacks, and write it there."""
    results = _read(file)
    for name in models:
        known = {} if again else results.get(name, {})
        start = time.perf_counter()
        made = check_model(name, [e for e in exporters if e not in known], seconds)
        results[name] = {**results.get(name, {}), **{r.exporter: r for r in made}}
        print(f"{name}: {', '.join(r.outcome for r in made) or 'known'} ({time.perf_counter() - start:.0f} s)", flush=True)
        if made:
            report.write_json(file, _figures(results))
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
    torch: Any = import_module("torch")
    torch.set_grad_enabled(False)
    folder.mkdir(parents=True, exist_ok=True)
    for name in models:
        model, inputs = live_model(name, full_size)
        tensors = [i.draw(torch, torch.Generator().manual_seed(1)) for i in inputs]
        for exporter in exporters:
            path = folder / f"{name}-{exporter}.onnx"
            reason = export(model, tensors, path, exporter)
            print(f"{path}: {reason or 'written'}", flush=True)


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--model", action="append", choices=MODELS, metavar="NAME", help="one of the models (all)")
    p.add_argument("--exporter", action="append", choices=EXPORTERS, help="one of the exporters (all)")
    p.add_argument("--again", action="store_true", help="also make what the file of --json holds already")
    p.add_argument("--time-limit", type=float, default=SECONDS, metavar="SECONDS", help="of one model")
    p.add_argument("--export-only", type=Path, metavar="FOLDER", help="write the ONNX files and stop")
    p.add_argument("--full-size", action="store_true", help="of --export-only: images of 224 x 224, all layers")
    options = p.parse_args()
    models, exporters = options.model or list(MODELS), options.exporter or list(EXPORTERS)
    if options.export_only is not None:
        export_only(options.export_only, models, exporters, options.full_size)
        return
    results = check_all(models, exporters, options.json, options.again, options.time_limit)
    _print(results, models, exporters)


if __name__ == "__main__":
    main()
