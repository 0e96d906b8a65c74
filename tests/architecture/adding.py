"""The files that a kind of step, and a sketch rule, take: both are added to a copy of the packages, and used there.

    python -m tests.architecture.adding      prints the files of the product that differ from those of this tree

What is added are the examples of `examples/seams`, each as an extension of its own: a folder with its class or its
rule, and a line of the table in `te_lite/extensions.py`.  A process that has the copy alone then reads a record with
the letters of the step and writes C of it, and asks for the sketches of the rule by its name; neither names a module
of the extension.  If that takes another file of the product, the process fails until it is written here, and the
number of files rises.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from sysconfig import get_path

ROOT = Path(__file__).parent.parent.parent
COPIED = ("te_lite", "ansor", "codegen_c", "ansor_ext")
TABLE = Path("te_lite/extensions.py")
END = ")  # fmt: skip\n"
"""The line that ends the table."""

_RULE = """

def tiled_sketches(ctx):
    states = ctx.dag.init_state
    return [made for k, _ in enumerate(states.stages) if applies(None, states, k) != rule.PASS
            for made, _ in tile(None, states, k)]
"""

USE_STEP = """
import codegen_c, te_lite as te
from te_lite.schedule.replay import replay
from te_lite.schedule.step import steps_from_json
a = te.placeholder((100,), name="A")
b = te.compute((100,), lambda i: a[i] * 2.0, name="B")
record = [["SP", 1, 0, 100, [8], 1], ["PEL", 1, 0, 1], ["AN", 1, 1, 2]]
state = replay(te.ComputeDAG([a, b]), steps_from_json(record))
text = codegen_c.emit(te.lower(state, name="twice"))
assert "i_0 < 12" in text and "B[i_1 + 96]" in text, text
"""

USE_RULE = """
import ansor, te_lite as te
from ansor.sketch.generate import extra_sketches
a, b, k = te.placeholder((64, 64)), te.placeholder((64, 64)), te.reduce_axis((0, 64))
c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
task = ansor.SearchTask(compute_dag=te.ComputeDAG([a, b, c]), target="c")
(sketch,) = extra_sketches(task.compute_dag, task.target, task.hardware_params, rules=["two_tiles"])
assert [step.tag for step in sketch.steps] == ["SP", "SP", "RE"], sketch
"""


def in_the_table(root: Path, line: str) -> None:
    """Enter a line at the end of the table of extensions."""
    text = (root / TABLE).read_text()
    assert text.count(END) == 1
    (root / TABLE).write_text(text.replace(END, f"    {line}\n{END}"))


def _folder(root: Path, name: str) -> Path:
    folder = root / "ansor_ext" / name
    folder.mkdir()
    (folder / "__init__.py").write_text(f'"""{name}: an example."""\n')
    (folder / "README.md").write_text(f"# {name}\n")
    return folder


def add_step(root: Path) -> None:
    """The kind of step of `examples/seams/custom_step.py`, as the extension `peel`."""
    shutil.copy(ROOT / "examples" / "seams" / "custom_step.py", _folder(root, "peel") / "steps.py")
    in_the_table(root, 'Extension("peel", steps=(Letters("PEL", "steps:Peel", "s[C].peel"),)),')


def add_rule(root: Path) -> None:
    """The sketch rule of `examples/seams/custom_sketch_rule.py`, as the extension `two_tiles`."""
    text = (ROOT / "examples" / "seams" / "custom_sketch_rule.py").read_text()
    (_folder(root, "two_tiles") / "rule.py").write_text(text + _RULE)
    in_the_table(root, 'Extension("two_tiles", (), (Offer("two_tiles", "rule:tiled_sketches", 230),)),')


def changed(root: Path) -> list[str]:
    """The files of a copy that differ from those of this tree, or that this tree lacks."""
    files = [path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    names = sorted(path.relative_to(root).as_posix() for path in files)
    return [n for n in names if not (ROOT / n).is_file() or (ROOT / n).read_bytes() != (root / n).read_bytes()]


def touched_by(add: Callable[[Path], None], use: str) -> list[str]:
    """The files of the product that `add` touches.  Raises AssertionError unless `use` runs with these alone."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name in COPIED:
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        add(root)
        paths = [folder, *{get_path("purelib"), get_path("platlib")}]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "ANSOR_CACHE": "off", "ANSOR_EXTENSIONS": "all"}
        command = [sys.executable, "-S", "-c", use]
        done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return changed(root)


def step_kind_files() -> list[str]:
    """The files that a kind of step takes."""
    return touched_by(add_step, USE_STEP)


def sketch_rule_files() -> list[str]:
    """The files that a sketch rule takes."""
    return touched_by(add_rule, USE_RULE)


if __name__ == "__main__":
    print("a kind of step:", *step_kind_files(), sep="\n    ")
    print("a sketch rule:", *sketch_rule_files(), sep="\n    ")
