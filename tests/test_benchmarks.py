"""Every script of benchmarks/ says in one sentence what it lacks, before it measures, and from any folder.

One process goes over all of them, with the packages of the extras hidden: a script is started as `python -m` does it.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ansor.core.errors import TaskError
from benchmarks import needs, operator_rows, promises, promises_tests, report
from benchmarks.__main__ import HERE, names
from te_lite.errors import LowerError
from tests.nonempty import nonempty

GPU = r"target 'cuda': an NVIDIA GPU .* is needed.*; here: No module named"
HIDDEN = sorted(needs.PACKAGES - {"hypothesis", "pytest", "scipy"})
LACKING: dict[str, tuple[str, str]] = {
    "at_once": ("--log logs", GPU),
    "beside_torch": ("--model bert --log log.json", GPU),
    "codegen_vs_tvm": ("", GPU), "copy_engine_ladder": ("", GPU),
    "cost_model": ("--target cuda", GPU), "double_buffer": ("", GPU),
    "extra_rules": ("", GPU), "fleet_gpus": ("", GPU), "four_networks": ("", GPU), "launch_ways": ("", GPU),
    "measure_overhead": ("", GPU),
    "kernelbench": (". --json figures.json", "torch: not installed; `"),
    "offline_data": ("--target cuda --log logs", GPU), "product_ladder": ("", GPU),
    "promises": ("R4 R3", GPU), "random_search": ("", GPU), "ring_ladder": ("", GPU),
    "sanitized": ("", GPU), "sanitized_products": ("", GPU),
    "search_quality": ("--logs logs --target cuda", GPU), "sliced_tiles": ("", GPU), "tensor_cores": ("", GPU),
    "tile_lengths": ("--log logs", GPU),
    "tune_gpu": ("", GPU), "tune_network": ("--log log.json", GPU), "winner": ("--target cuda", GPU),
    "operators": ("", "PyTorch: it is not installed; `"), "torch_network": ("", "PyTorch: it is not installed; `"),
    "torch_models": ("--models bert", "torch, transformers: not installed; `.* -m pip install torch transformers`$"),
    "onnx_networks": ("", "onnxruntime: not installed; `"), "onnx_node_tests": ("", "onnx: not installed; `"),
    "shipped_models": ("", "onnx, onnxruntime: not installed; `"),
    "shipped_models_one": ("model.onnx {}", "onnx: not installed; `"),
    "study": ("operators --device cuda", GPU),
    "zoo": ("", "onnx: not installed; `"), "zoo_check": ("", "onnx: not installed; `"),
}  # fmt: skip
"""By script: the words it is started with, and the sentence that it must end with."""
ASKING = re.compile(r"report\.gpu\(|require_packages\(|exact_torch\(|import onnx|check_needs\(")
ALL = """
import contextlib, io, json, runpy, sys
hidden, scripts = map(json.loads, sys.argv[1:])
sys.modules.update(dict.fromkeys(hidden))
import benchmarks
for name, words in scripts:
    sys.argv, said = [name, *words], io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
        try:
            runpy.run_module(f"benchmarks.{name}", run_name="__main__", alter_sys=True)
            end = 0
        except SystemExit as stop:
            end = stop.code
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)
            end = said.getvalue()
    print(json.dumps([name, end, said.getvalue()]))
"""


def ends_of(scripts: list[tuple[str, list[str]]], hidden: list[str], folder: Path) -> dict[str, tuple[int | str, str]]:
    """By script: the exit status, or the sentence that stands for 1, and the error stream."""
    env = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, "-W", "ignore::RuntimeWarning", "-c", ALL, json.dumps(hidden), json.dumps(scripts)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return {name: (end, said) for name, end, said in map(json.loads, done.stdout.splitlines())}


def test_what_is_missing_is_one_sentence(tmp_path: Path) -> None:
    """And nothing was measured: the folder of the run is empty."""
    ends = ends_of([(name, words.split()) for name, (words, _) in LACKING.items()], HIDDEN, tmp_path)
    for name, (_, sentence) in LACKING.items():
        end, said = ends[name]
        assert isinstance(end, str) and "Traceback" not in end + said, (name, end, said)
        assert "\n" not in end.strip() and re.search(sentence, end.strip()), (name, end)
    assert not list(tmp_path.iterdir())


def test_every_script_that_asks_is_tried() -> None:
    """Those that are not in the table need only what `pip install -e .[dev]` brings."""
    asking = {name for name in names() if ASKING.search((HERE / f"{name}.py").read_text())}
    assert asking == set(LACKING)


def test_every_script_tells_its_words_and_ends_in_run(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    for name, (end, said) in nonempty(ends_of([(name, ["--help"]) for name in names()], [], tmp_path).items()):
        assert end == 0 and not said, (name, said)
    for name in nonempty(names()):
        if name != "__main__":
            assert (HERE / f"{name}.py").read_text().endswith("    report.run(main)\n"), name


def test_bugs_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def script(error: Exception) -> None:
        def main() -> None:
            raise error

        report.run(main)

    for bug in (LowerError("no loop nest"), ModuleNotFoundError("No module named 'ansor.typo'", name="ansor.typo")):
        with pytest.raises(type(bug)):
            script(bug)
    monkeypatch.setattr(sys, "argv", ["any/folder/script.py"])
    with pytest.raises(SystemExit, match=r"^script: row: wrong$"):
        script(TaskError("row: wrong"))
    with pytest.raises(SystemExit, match=r"^script: timm: not installed; `.* -m pip install timm`$"):
        script(ModuleNotFoundError("No module named 'timm'", name="timm.models"))


def test_promises_are_known_and_broken_ones_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"

    def run(*words: str) -> None:
        monkeypatch.setattr(sys, "argv", ["promises", *words, "--json", str(file)])
        report.run(promises.main)

    with pytest.raises(SystemExit, match=r"^promises: promise 'R99': did you mean R9[?] the names are R1, R2"):
        run("R4", "R99")
    monkeypatch.setitem(promises.PROMISES, "R4", lambda folder: {"kills": 9, "lost": 2})
    with pytest.raises(SystemExit, match=r"broken promises: these figures must be 0 or empty, got \['R4: lost=2'\]"):
        run("R4")
    assert json.loads(file.read_text())["figures"]["R4"]["kills"] == 9


def test_promises_run_their_tests_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[list[str]] = []
    monkeypatch.setattr(promises_tests.pytest, "main", lambda words, plugins: done.append(words) or 0)
    monkeypatch.chdir(tmp_path)
    for promise in (promises_tests.r10, promises_tests.r17):
        promise(tmp_path)
    files = [word for words in done for word in words if word.endswith(".py")]
    assert len(files) == 2 and all(Path(file).is_absolute() and Path(file).exists() for file in files)


def test_rows_for_gpus_are_left_out_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    rows = operator_rows.chosen_rows(operator_rows.read_rows(operator_rows.OWN), ["matmul 1024*"])
    assert any(r.arithmetic for r in rows) and operator_rows.of_target(rows, "cuda") == rows
    left = operator_rows.of_target(rows, "c")
    assert left and not any(r.arithmetic for r in left)
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"{len(rows) - len(left)} of {len(rows)} rows are left out: " in said
    with pytest.raises(TaskError, match="tf32 are for GPUs only: --target cuda"):
        operator_rows.of_target([r for r in rows if r.arithmetic == "tf32"], "c")


def test_files_are_tried_first(tmp_path: Path) -> None:
    assert needs.file_to_write(str(tmp_path / "new" / "a.json")) and (tmp_path / "new").is_dir()
    for bad in (str(tmp_path), "/proc/nowhere/a.json"):
        with pytest.raises(argparse.ArgumentTypeError):
            needs.file_to_write(bad)
    with pytest.raises(argparse.ArgumentTypeError, match=r"'no\.csv' must be there"):
        needs.path_to_read("no.csv")
