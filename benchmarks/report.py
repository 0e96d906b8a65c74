"""What every benchmark script shares: a table on the terminal, and `--json FILE` with machine, date and commit."""

from __future__ import annotations

import argparse
import datetime
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from ansor.core.host.hints import python
from ansor.core.values.checks import columns_of
from ansor.records.store import OFF
from benchmarks.needs import file_to_write, gpu, path_to_read, require_names, require_packages, sentence
from te_lite import environment
from te_lite.errors import TeError

__all__ = [
    "circumstances", "gpu", "is_there", "joined", "let_blas_choose", "parser", "path_to_read", "processor",
    "require_names", "require_packages", "run", "table", "words_of", "write_json",
]  # fmt: skip


def parser(doc: str) -> argparse.ArgumentParser:
    """An argument parser that knows `--json`."""
    p = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--json", metavar="FILE", type=file_to_write, help="also write the figures to FILE")
    return p


def table(rows: Sequence[Sequence[Any]], header: Sequence[str]) -> None:
    """Print rows under a header, numbers right-aligned."""
    text = [[f"{x:.3f}" if isinstance(x, float) else str(x) for x in row] for row in rows]
    width = [max(len(line[c]) for line in [list(header), *text]) for c in range(len(header))]
    print(*columns_of([list(header), ["-" * w for w in width], *text]), sep="\n")


def run(main: Callable[[], None]) -> None:
    """Run a script; what is missing, or what the packages refuse, is one sentence and exit status 1.

    The store of records is off unless `ANSOR_CACHE` names one: figures do not depend on what was tuned here before.
    """
    try:
        with environment.ANSOR_CACHE.unless_set(OFF):
            main()
    except (TeError, ModuleNotFoundError) as error:
        text = sentence(error)
        if text is None:
            raise
        sys.exit(f"{Path(sys.argv[0]).stem}: {text}")


def words_of(module: str, *words: str, env: Mapping[str, str] | None = None) -> str:
    """What `python -m module` prints in a fresh process; where that fails, it has said why, and this one ends as it."""
    done = subprocess.run(
        [sys.executable, "-m", module, *words], stdout=subprocess.PIPE, text=True, env=env, check=False
    )
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


@cache
def is_there(module: str, lost: str) -> bool:
    """Whether a package is installed; if not, what is `lost` without it is said on the error stream, once."""
    found = importlib.util.find_spec(module) is not None
    if not found:
        print(f"{lost}: {module} is not installed ({python()} -m pip install {module})", file=sys.stderr, flush=True)
    return found


def let_blas_choose() -> None:
    """Start this program again without the variables that hold OpenBLAS to an older processor's kernels."""
    if os.environ.pop("OPENBLAS_CORETYPE", None) is not None:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def processor() -> str:
    """The model name of the processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def circumstances(device: str | None = None) -> dict[str, Any]:
    """The machine, date and commit of a run (ANSOR_COMMIT names the commit where git does not)."""
    commit = os.environ.get("ANSOR_COMMIT") or _commit()
    return {
        "machine": device or f"{processor()}, {os.cpu_count()} cores",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "commit": commit or "unknown",
    }


@cache
def _commit() -> str:
    """That of this checkout, wherever it is run; empty where git is not installed or knows none."""
    if shutil.which("git") is None:
        return ""
    command = ["git", "-C", os.fspath(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def joined(made: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """The circumstances of several runs: all machines and commits, the first and the last date."""
    found = {name: sorted({one[name] for one in made}) for name in ("machine", "date", "commit")}
    dates = found["date"][:: max(1, len(found["date"]) - 1)]
    return {"machine": ", ".join(found["machine"]), "date": " to ".join(dates), "commit": ", ".join(found["commit"])}


def write_json(
    file: str | None, figures: dict[str, Any], device: str | None = None, made: Mapping[str, str] | None = None
) -> None:  # fmt: skip
    """Write `figures` with the circumstances of the run, or with those in which they were `made` before.

    A file that is there is replaced at once or not at all.
    """
    if file is None:
        return
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.part")
    where = circumstances(device) if made is None else made
    scratch.write_text(json.dumps({**where, "figures": figures}, indent=1) + "\n")
    scratch.replace(path)
