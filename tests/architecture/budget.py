"""How much there is to read: code lines, files that a program enters and an addition touches, modules that load.

    python -m tests.architecture.budget             prints the numbers, those of tests/architecture/budget.json beside
    python -m tests.architecture.budget --write     lowers the numbers in that file to those of today

Code lines are counted as tinygrad's sz.py counts them: lines with a token that is no comment, docstring or newline.  Of
C, C++ and templates every line counts that is not blank.

A file is entered when one of its functions runs while a program is made.  Imports do not count: neither the bodies of
modules and classes, nor the functions that run before these are done.  The program is a product of matrices with a
`relu` behind it, tiled and fused by the rules of the paper, from its expression through the steps of a record to the C
text for vectors of 32 bytes, whatever this machine has; a process of its own makes it, so that nothing is cached.

So is the network `mlp`, untuned and without workers, which enters passes over graphs, default programs and libraries,
too.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any

from tests.architecture.adding import sketch_rule_files, step_kind_files

ROOT = Path(__file__).parent.parent.parent
TABLE = Path(__file__).with_name("budget.json")
CORE = ("te_lite", "ansor", "codegen_c", "codegen_cuda", "mini_ansor")
"""What one has to read.  These only shrink."""
EXTENSIONS = "ansor_ext"
OTHERS = (EXTENSIONS, "relay_lite", "vta_sim")
"""What stands beside it and may grow to its ceiling; each extension has one of its own."""
BESIDE = (".c", ".cpp", ".h", ".html")

_NO_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip


# ---------------------------------------------------------------------------------------------------- code lines


@lru_cache(maxsize=2048)
def code_lines(text: str) -> int:
    """The lines of a Python source that have a token other than comments, docstrings and newlines."""
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type not in _NO_CODE]
    counted = [t for t in tokens if not _is_docstring(t)]
    return len({line for t in counted for line in range(t.start[0], t.end[0] + 1)})


def _is_docstring(token: tokenize.TokenInfo) -> bool:
    """As in sz.py: a string that begins its line, with three quotes."""
    return token.type == tokenize.STRING and token.string.startswith('"""') and token.line.strip().startswith('"""')


def folders(package: str, root: Path = ROOT) -> dict[str, int]:
    """The code lines of every folder of a package, those of its own files only."""
    found: dict[str, int] = {}
    for path in sorted((root / package).rglob("*.py")):
        folder = path.parent.relative_to(root).as_posix()
        found[folder] = found.get(folder, 0) + code_lines(path.read_text())
    return found


def lines_beside(package: str, root: Path = ROOT) -> int:
    """The lines of C, C++ and templates in a package that are not blank."""
    paths = [path for path in (root / package).rglob("*") if path.suffix in BESIDE]
    return sum(bool(line.strip()) for path in paths for line in path.read_text().splitlines())


def packages(root: Path = ROOT) -> list[str]:
    """The packages of the product that there are."""
    return [package for package in (*CORE, *OTHERS) if (root / package).is_dir()]


# --------------------------------------------------------------------------------------------------- files entered

STEPS = (
    '[["SP", 2, 0, 64, [2, 4, 4], 1], ["SP", 2, 4, 64, [2, 2, 8], 1], ["SP", 2, 8, 64, [8], 1],'
    ' ["RE", 2, [0, 4, 1, 5, 8, 2, 6, 9, 3, 7]], ["FSP", 3, 0, 0, 2], ["FSP", 3, 3, 1, 2],'
    ' ["RE", 3, [0, 3, 1, 4, 2, 5]], ["CA", 2, 3, 3], ["FU", 3, [0, 1, 2, 3]], ["AN", 3, 0, 3],'
    ' ["PR", 2, 0, "auto_unroll_max_step$16"], ["AN", 2, 9, 2], ["AN", 3, 2, 2]]'
)
"""Multi-level tiling with fusion, as the search draws it: the steps of a record, in TVM's letters."""


@dataclass
class Entered:
    """The files whose functions ran, imports left out; an instance is a profile function."""

    files: set[str] = field(default_factory=set)
    importing: int = 0
    """How many bodies of modules are under way."""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        body = frame.f_code.co_name == "<module>"
        match event:
            case "call" if body:
                self.importing += 1
            case "return" if body:
                self.importing -= 1
            case "call" if not self.importing:
                self.files.add(frame.f_code.co_filename)


def make_program() -> str:
    """The files that making the C text of the program from its expression enters, imports left out."""
    import codegen_c
    import te_lite as te
    from codegen_c.processor import PROCESSORS
    from te_lite.schedule.replay import replay
    from te_lite.schedule.step import steps_from_json

    entered = Entered()
    sys.setprofile(entered)
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    product = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="product")
    out = te.compute((64, 64), lambda i, j: te.maximum(product[i, j], 0.0), name="relu")
    state = replay(te.ComputeDAG([a, b, out]), steps_from_json(json.loads(STEPS)))
    text = codegen_c.emit(te.lower(state, name="product"), options=PROCESSORS["avx2"])
    sys.setprofile(None)
    assert "parallel for" in text and "void product(" in text
    return json.dumps(sorted(entered.files))


def make_network() -> str:
    """The files that building an untuned network enters, as `make_program` has those of a program."""
    import relay_lite
    from ansor.policy import made_ahead

    made_ahead.host_cores = lambda: 1
    module, params = relay_lite.testing.get_workload("mlp")
    entered = Entered()
    sys.setprofile(entered)
    relay_lite.build(module, target="c -march=haswell", params=params)
    sys.setprofile(None)
    return json.dumps(sorted(entered.files))


def _printed(code: str, **more: str) -> str:
    """What a new process prints; `more` is added to its environment."""
    command, env = [sys.executable, "-c", code], {**os.environ, **more}
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, env=env).stdout


def entered_files(maker: str = "make_program") -> list[str]:
    """The files of the packages that making the program enters, or the network (`make_network`)."""
    with tempfile.TemporaryDirectory() as empty:
        code = f"from tests.architecture.budget import {maker}; print({maker}())"
        found = json.loads(_printed(code, XDG_CACHE_HOME=empty, ANSOR_CACHE="off"))
    inside = [Path(name).relative_to(ROOT) for name in found if Path(name).is_relative_to(ROOT)]
    return sorted(path.as_posix() for path in inside if path.parts[0] in (*CORE, *OTHERS))


def loaded_modules() -> list[str]:
    """The modules of the packages that `import ansor` loads."""
    names = _printed("import sys, ansor; print(*sys.modules)").split()
    return sorted(name for name in names if name.split(".")[0] in (*CORE, *OTHERS))


# ----------------------------------------------------------------------------------------------------------- table


def measured() -> dict[str, int]:
    """All numbers that are held to the table, by name."""
    entered = entered_files()
    numbers = {f"code lines of {package}": sum(folders(package).values()) for package in packages()}
    numbers |= {f"code lines of {folder}": count for folder, count in folders(EXTENSIONS).items() if "/" in folder}
    numbers["files that a program enters"] = len(entered)
    numbers["code lines of these files"] = sum(code_lines((ROOT / name).read_text()) for name in entered)
    numbers["files that an untuned network enters"] = len(entered_files("make_network"))
    numbers["files touched by a kind of step that is added"] = len(step_kind_files())
    numbers["files touched by a sketch rule that is added"] = len(sketch_rule_files())
    numbers["modules that `import ansor` loads"] = len(loaded_modules())
    return numbers


def is_core(name: str) -> bool:
    """Whether a number may only be lowered; the others have ceilings."""
    return not name.startswith(tuple([f"code lines of {package}" for package in OTHERS]))


def table() -> dict[str, int]:
    """The committed numbers."""
    return {str(name): int(number) for name, number in json.loads(TABLE.read_text()).items()}


def exceeded(numbers: Mapping[str, int], limits: Mapping[str, int]) -> list[str]:
    """A sentence for every number that is above the table's, or that the table lacks."""
    return [_complaint(name, n, limits.get(name)) for name, n in numbers.items() if n > limits.get(name, -1)]


def _complaint(name: str, number: int, limit: int | None) -> str:
    if limit is None:
        return f"{name}: {number}, which has no limit in tests/architecture/budget.json; enter one"
    what = "the core's numbers may not be raised, only lowered" if is_core(name) else "this is its ceiling"
    return f"{name}: {number}, {number - limit} above the {limit} of tests/architecture/budget.json; {what}"


def lowered(numbers: Mapping[str, int], limits: Mapping[str, int]) -> dict[str, int]:
    """The table with the core's numbers as they are, where these are lower; ceilings stay."""
    return {name: min(limit, numbers.get(name, limit)) if is_core(name) else limit for name, limit in limits.items()}


def lines() -> Iterator[str]:
    """All that is counted, a line each."""
    for package in (*packages(), "tests"):
        counts = folders(package)
        yield f"{sum(counts.values()):7}  {package}" + _and_beside(package)
        if len(counts) > 1:
            yield from (f"{number:15}  {folder}" for folder, number in counts.items())
    yield f"{sum(sum(folders(package).values()) for package in packages()):7}  all packages, without tests"
    yield ""
    limits = table()
    for name, number in measured().items():
        yield f"{number:7}  {name}, at most {limits.get(name, 'what is not said')}"
    yield ""
    yield from (f"{code_lines((ROOT / name).read_text()):7}  {name}" for name in entered_files())


def _and_beside(package: str) -> str:
    beside = lines_beside(package)
    return f", and {beside} lines of C, C++ and templates" if beside else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="How much there is to read.")
    parser.add_argument("--write", action="store_true", help="lower the numbers of the table to those of today")
    if parser.parse_args().write:
        TABLE.write_text(json.dumps(lowered(measured(), table()), indent=1) + "\n")
    else:
        print("\n".join(lines()))
