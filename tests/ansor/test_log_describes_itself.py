"""A log says which workloads it is about and which runs wrote it, and is read where nothing is registered."""

from __future__ import annotations

import copy
import gzip
import json
import random
import sys
from pathlib import Path
from typing import Any

import pytest

import ansor
import te_lite as te
from ansor.cli.main import main
from ansor.core.tasks import workloads
from ansor.core.tasks.catalog import CATALOG
from te_lite.printing.dag_json import dag_from_foreign_json, dag_to_json
from te_lite.topi import nn
from tests.workloads import matmul

LOGS = Path(__file__).parent.parent.parent / "benchmarks" / "results" / "logs"
OK = ansor.MeasureResult((1e-3,), 0, "", 0.25, 1_700_000_000)


def mine(n: int, m: int) -> list[te.Tensor]:
    a = te.placeholder((n, m), name="A")
    return [a, te.compute((n, m), lambda i, j: te.exp(a[i, j]) * 3.0, name="B")]


class Policy:
    seed = 17


@pytest.fixture
def forget(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A process in which nobody registered anything."""

    def forget() -> None:
        for table in ("_FUNCTIONS", "_TENSORS", "_DAGS", "_LOGGED"):
            monkeypatch.setattr(workloads, table, {})
        monkeypatch.setattr(workloads, "OFFERED", dict)

    return forget


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Records of a function of the user's own, and of a network's task under its hash."""
    ansor.register_workload(mine)
    first = ansor.SearchTask(mine, (6, 4), target="c")
    second = ansor.SearchTask(compute_dag=te.ComputeDAG(matmul(3, 4, 5)), target="c", desc="fused_nn_dense_add")
    path = tmp_path / "log.json"
    recorder = ansor.RecordToFile(path)
    for task in (first, second, first):
        recorder.callback(Policy(), [ansor.MeasureInput(task, task.compute_dag.init_state)], [OK])
    return path


def notes(log: Path, kind: str) -> list[dict[str, Any]]:
    return [json.loads(line[len(kind) :]) for line in log.read_text().splitlines() if line.startswith(kind)]


def test_what_it_says(log: Path) -> None:
    lines = log.read_text().splitlines()
    assert [line[:10] for line in lines] == [
        '# run {"co',
        "# workload",
        '{"i": [["[',
        "# workload",
        *['{"i": [["['] * 2,
    ]
    (run,) = notes(log, "# run ")
    assert run["seed"] == 17 and run["versions"].keys() == {"ansor", "python", "numpy"}
    assert sys.argv[0] in run["command"]
    first, second = notes(log, "# workload ")
    assert first["key"] == '["mine", 6, 4]' and first["name"] == "mine"
    assert first["text"] == str(te.ComputeDAG(mine(6, 4)))
    assert second["name"] == "fused_nn_dense_add"
    ansor.RecordToFile(log).callback(None, *[list(x) for x in zip(next(ansor.load_records(log)), strict=True)])
    assert len(notes(log, "# run ")) == 2 and len(notes(log, "# workload ")) == 2
    assert notes(log, "# run ")[1]["seed"] is None
    assert len(list(ansor.load_records(log))) == 4 and ansor.RecordReader(log).num_bad == 0


@pytest.mark.parametrize("form", ["as it is", "packed", "distilled", "distilled and packed"])
def test_it_is_read_where_nothing_is_registered(form: str, log: Path, forget: Any, capsys: Any) -> None:
    place = log
    if form.startswith("distilled"):
        place = log.with_name("best.json.gz" if form.endswith("packed") else "best.json")
        assert ansor.distill_record_file(log, place) == 2
    elif form == "packed":
        place = log.with_name("log.json.gz")
        place.write_bytes(gzip.compress(log.read_bytes()))
    assert place.read_bytes().startswith(b"\x1f\x8b") == form.endswith("packed")
    forget()
    assert main(["best", str(place), "--print", "c"]) == 0
    out = capsys.readouterr().out
    assert "mine(6, 4) for c: 1 ms" in out and "fused_nn_dense_add([3, 5], [5, 4], [3, 4]) for c" in out
    assert "/* default_function: A[6, 4] float32, B[6, 4] float32 */" in out
    inp, _ = ansor.load_best_record(place, '["mine", 6, 4]')
    assert inp is not None and inp.task.desc == "" and "s[B]" not in inp.task.print_best(place)
    assert inp.task.best_state(place).concrete


def test_a_registered_function_goes_before(log: Path, forget: Any) -> None:
    forget()
    ansor.register_workload("mine", lambda n, m: matmul(n, m, 2))
    list(ansor.load_records(log))
    assert ansor.SearchTask("mine", (6, 4), target="c").compute_dag.inputs[0].shape == (6, 2)


def test_another_log_may_mean_something_else(log: Path, forget: Any, tmp_path: Path) -> None:
    """Two people called a function `mine`: each log has its own."""
    other = tmp_path / "other.json"
    (note, *_) = notes(log, "# workload ")
    note["dag"] = dag_to_json(te.ComputeDAG(mine(9, 9)))
    other.write_text(f"# workload {json.dumps(note)}\n")
    forget()
    shapes = []
    for path in (log, other, log):
        list(ansor.load_records(path))
        shapes.append(workloads.workload_dag('["mine", 6, 4]').inputs[0].shape)
    assert shapes == [(6, 4), (9, 9), (6, 4)]


def test_a_hash_is_checked(log: Path, forget: Any) -> None:
    (first, second) = notes(log, "# workload ")
    second["dag"] = first["dag"]
    log.write_text(f"# workload {json.dumps(second)}\n")
    forget()
    list(ansor.load_records(log))
    with pytest.raises(ansor.TaskError, match="'fused_nn_dense_add' of a log: the log holds another computation than"):
        workloads.workload_dag(second["key"])


def test_comments_that_are_none_of_ours(log: Path, forget: Any) -> None:
    bad = [
        "# workload",
        "# workload {",
        "# workload []",
        '# workload {"key": 3}',
        "# run {",
        "# workload " + "[" * 9999,
    ]
    log.write_text("".join(line + "\n" for line in bad) + log.read_text())
    forget()
    assert len(list(ansor.load_records(log))) == 3


SPOILS: list[Any] = [None, -1, 0, 10**12, 1.5, "", "x", 'a"); system("touch canary', "*/", [], [0], {}, True, "float32"]


def places(value: Any) -> list[tuple[Any, Any]]:
    """All (container, index) pairs of a JSON value."""
    found = []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for index, child in items:
        found.append((value, index))
        found += places(child)
    return found


def computations() -> list[te.ComputeDAG]:
    a = te.placeholder((3, 8), name="a")
    k = te.reduce_axis((0, 8), "k")
    index, value = te.compute((3,), lambda i: te.argmax((k, a[i, k]), axis=k), name="best")
    keys = ["matmul", "softmax", "norm", "conv1d", "conv2d"]
    made = [ansor.SearchTask(workload_key=CATALOG[k].key(CATALOG[k].default), target="c").compute_dag for k in keys]
    return [*made, te.ComputeDAG([a, index, value]), te.ComputeDAG([a, nn.softmax(a)])]


@pytest.mark.parametrize("dag", computations(), ids=lambda dag: dag.ops[-1].name)
def test_a_computation_that_was_tampered_with(dag: te.ComputeDAG) -> None:
    """It is refused in one sentence, or is a computation; no text of it reaches a program but names and operators."""
    rng, data = random.Random(0), json.loads(json.dumps(dag_to_json(dag)))
    assert dag_from_foreign_json(data).workload_key() == dag.workload_key()
    refused = 0
    for _ in range(300):
        spoiled = copy.deepcopy(data)
        container, index = rng.choice(places(spoiled))
        container[index] = rng.choice(SPOILS)
        try:
            found = dag_from_foreign_json(spoiled)
        except te.TeError as error:
            refused += 1
            assert "\n" not in str(error)
        else:
            assert "canary" not in str(found) or "canary" in json.dumps([op[4] for op in spoiled["ops"]])
    assert refused > 150


@pytest.mark.parametrize("bad", ["x; y", 'a"b', "a b", "", "1a", "a\n", "ä", "a" * 300, "*/"])
def test_names_are_words(bad: str) -> None:
    dag = te.ComputeDAG(mine(2, 3))
    for op in range(2):
        data = json.loads(json.dumps(dag_to_json(dag)))
        data["ops"][op][1] = bad
        with pytest.raises(te.ExprError, match="computation in JSON: an operation is not one"):
            dag_from_foreign_json(data)


def test_packed_logs_are_read_and_not_written(log: Path, tmp_path: Path, refused: Any) -> None:
    packed = tmp_path / "log.json.gz"
    packed.write_bytes(gzip.compress(log.read_bytes()))
    inp, res = next(ansor.load_records(packed))
    with pytest.raises(ansor.JournalError, match=r"log.json.gz: is packed by gzip, and records cannot be appended"):
        ansor.save_records(packed, [inp], [res])
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(ansor.JournalError, match=r"log.json.gz: cannot be read: it is packed, and damaged"):
        list(ansor.load_records(packed))
    refused(["best", str(packed)], "damaged", 3)


@pytest.mark.parametrize("name", ["conv2d_layer_h200.json", "matmul_1024_h200.json"])
def test_the_shipped_logs_are_listed(name: str, forget: Any, capsys: Any) -> None:
    forget()
    assert main(["best", str(LOGS / name)]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(("conv2d_layer([1, 512, 7, 7], ", "matmul([1024, 1024], ")) and " for cuda: " in line


def test_the_shipped_log_of_a_network_is_known(forget: Any) -> None:
    forget()
    inputs, _ = ansor.RecordReader(LOGS / "resnet18_h200.json.gz").read_lines()
    tasks = {inp.task.workload_key: inp.task for inp in inputs}
    assert len(tasks) == 24 and all(task.title.startswith("fused_nn_") for task in tasks.values())
    assert all(task.compute_dag.workload_key() == key for key, task in tasks.items())


def test_the_readme_layer_finds_its_shipped_record() -> None:
    """README: `task.build_best(log)` makes the kernels; without a GPU, their source."""
    task = ansor.SearchTask("conv2d_layer", (1, 7, 7, 512, 512, 3, 3, (1, 1), (1, 1)), target="cuda")
    assert "__global__" in task.print_best(LOGS / "conv2d_layer_h200.json", "cuda")
    task = ansor.SearchTask("matmul", (1024, 1024, 1024), target="cuda")
    assert task.best_state(LOGS / "matmul_1024_h200.json").concrete
