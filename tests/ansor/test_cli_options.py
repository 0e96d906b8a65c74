"""Options of the commands that tune mean the same for all of them; shapes have names."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.cli import budget
from ansor.cli.main import _parser, main
from ansor.core.tasks.catalog import CATALOG


@pytest.mark.parametrize("command", [["tune", "matmul"], ["tune-network", "mlp"], ["vta", "tune"]])
def test_the_budget_is_the_same_everywhere(command: list[str], capsys: Any) -> None:
    args = _parser().parse_args([*command, "--trials", "9", "--more", "4", "--time-limit", "2.5"])
    assert (args.trials, args.more, args.time_limit) == (9, 4, 2.5)
    for bad, text in (
        (["--trials", "-1"], "--trials: a number of at least 0 is needed, got -1"),
        (["--more", "0"], "--more: a number of at least 1 is needed, got 0"),
        (["--time-limit", "0"], "--time-limit: time_limit must be a positive number of seconds, got 0.0"),
        (["--time-limit", "nan"], "--time-limit: time_limit must be a positive number of seconds, got nan"),
    ):
        assert main([*command, *bad]) == 2
        assert capsys.readouterr().err == f"ansor: {text}\n"


@pytest.mark.parametrize(
    ("trials", "more", "done", "new"),
    [(8, None, 0, 8), (8, None, 5, 3), (8, None, 24, 0), (8, 3, 24, 3), (0, None, 0, 0)],
)
def test_trials_are_counted_in_all(trials: int, more: int | None, done: int, new: int, capsys: Any) -> None:
    args = argparse.Namespace(trials=trials, more=more, effort="full", time_limit=None)
    assert budget.new_trials(args, done, "log.json") == new
    assert budget.total_trials(args, done) == (trials if more is None else done + more)
    assert ("holds" in capsys.readouterr().out) == (new == 0)


@pytest.mark.parametrize("name", CATALOG)
def test_shapes_by_name_and_in_order(name: str) -> None:
    entry = CATALOG[name]
    in_order = ",".join(map(str, entry.default))
    for text in (in_order, in_order.replace(",", "x"), entry.text, ",".join(reversed(entry.text.split(",")))):
        assert tuple(entry.numbers(text)) == entry.default
    first = entry.names[0]
    assert entry.numbers(f"{first}=77") == [77, *entry.default[1:]]
    for bad in ("Z=3", f"{first}=x", f"{first}=1,3", "=1", f"{first}="):
        with pytest.raises(ansor.TaskError, match="--shape: "):
            entry.numbers(bad)


def test_no_resume_measures_all_trials_beside_a_full_log(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    log, asked = tmp_path / "log.json", []
    task = ansor.SearchTask("matmul", (8, 8, 8), target="c")
    result = ansor.MeasureResult((1e-3,), 0, "", 0.1, 1_700_000_000)
    ansor.save_records(str(log), [ansor.MeasureInput(task, task.compute_dag.init_state)], [result])
    monkeypatch.setattr(ansor.SearchTask, "tune", lambda self, options, **_: asked.append(options.num_measure_trials))
    for more in ([], ["--no-resume"], ["--no-resume", "--more", "2"]):
        assert main(["tune", "matmul", "--shape", "8,8,8", "--trials", "1", "--log", str(log), *more]) == 0
    assert asked == [1, 2] and capsys.readouterr().out.count("holds 1 trial already") == 1


def test_one_order_for_convolutions() -> None:
    """The outputs have as many channels as CO says, wherever the layout has them."""
    for name, axis in (("conv2d", 1), ("conv2d_nhwc", 3), ("conv1d", 2), ("conv3d", 4)):
        entry = CATALOG[name]
        assert entry.names.index("CO") + 1 == entry.names.index("CI")
        key = entry.key(entry.numbers("CO=6,CI=4" if name != "conv3d" else "CO=6,CI=4,D=8,H=8,W=8"))
        dag = ansor.SearchTask(workload_key=key, target="c").compute_dag
        assert dag.outputs[0].shape[axis] == 6 and dag.inputs[0].shape[axis] == 4


def test_help_shows_the_shapes(capsys: Any) -> None:
    with pytest.raises(SystemExit):
        main(["tune", "--help"])
    out = capsys.readouterr().out
    assert all(entry.text in out for entry in CATALOG.values())


def test_no_trials_show_the_choice_of_the_model(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["tune", "matmul", "--shape", "N=13,M=11,K=7", "--trials", "0", "--seed", "1", "--verbose", "0"]) == 0
    out = capsys.readouterr().out
    assert (
        out.startswith("the model's choice for matmul(13, 11, 7) on c, not measured (--trials 0):\n") and "s[C]" in out
    )
    assert not list(tmp_path.iterdir())


def test_what_a_log_holds_counts(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    task = ansor.SearchTask("norm", (1, 4, 4), target="c")
    inp = ansor.MeasureInput(task, task.compute_dag.init_state)
    ansor.save_records("log.json", [inp] * 24, [ansor.MeasureResult((1e-3,), 0, "", 0.1, 1)] * 24)
    assert main(["tune", "norm", "--shape", "1,4,4", "--trials", "8", "--log", "log.json"]) == 0
    out = capsys.readouterr().out
    assert "log.json holds 24 trials already, all that --trials asks for" in out and "of 8" not in out
    assert len([json.loads(x) for x in Path("log.json").read_text().splitlines() if x[0] == "{"]) == 24


def test_a_choice_for_an_architecture_asks_no_gpu(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    def gone(self: object, target: str) -> None:
        raise ansor.BackendError("a GPU is needed")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("codegen_cuda.backend.CudaBackend.check", gone)
    monkeypatch.setattr("codegen_cuda.backend.CudaBackend.hardware", gone)
    command = ["tune", "matmul", "--shape", "16,16,16", "--target", "cuda -arch=sm_90", "--verbose", "0"]
    assert main([*command, "--trials", "0"]) == 0
    assert "the model's choice for matmul(16, 16, 16) on cuda -arch=sm_90, not measured" in capsys.readouterr().out
    assert main([*command, "--trials", "1"]) == 2
    assert capsys.readouterr().err == "ansor: a GPU is needed\n"


def test_what_was_not_measured_is_not_compared(tmp_path: Path, capsys: Any) -> None:
    log = tmp_path / "log.json"
    assert main(["tune", "matmul", "--shape", "8,8,8", "--trials", "0", "--compare", "--log", str(log)]) == 2
    assert capsys.readouterr().err.startswith("ansor: --compare: the program must be measured, and --trials 0 measures")
    assert not log.exists()


def test_reads_of_what_is_not_there_end_a_search_before_it_begins(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.setitem(sys.modules, "reads_outside", None)
    monkeypatch.delitem(sys.modules, "reads_outside")
    (tmp_path / "reads_outside.py").write_text(
        "import te_lite as te\n\n\ndef shifted(n):\n    a = te.placeholder((n, n), name='a')\n"
        "    return [a, te.compute((n, n), lambda i, j: a[i, j + 1], name='b')]\n"
    )
    log = tmp_path / "log.json"
    words = ["--args", "16", "--trials", "4", "--log", str(log)]
    assert main(["tune", f"{tmp_path}/reads_outside.py:shifted", *words]) == 2
    out = capsys.readouterr()
    assert "index 16 of dimension 1 in `a[i, (j + 1)]`" in out.err and out.err.count("\n") == 1
    assert "[0]" not in out.out and not log.exists()


def test_the_version(capsys: Any) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"ansor {ansor.__version__}\n"
