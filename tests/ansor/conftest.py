"""Workloads and backends shared by the tests of the search."""

import itertools
import json
from pathlib import Path

import pytest

import ansor
import te_lite as te
from ansor.cli.main import main

# a background job is started with Ctrl-C ignored, and its children inherit that
HEED_CTRL_C = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"

GOLDEN = Path(__file__).parent.parent / "golden"


def matmul(n, m, k):
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    axis = te.reduce_axis((0, k), name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, axis] * b[axis, j], axis=[axis]), name="C")]


ansor.register_workload("matmul", matmul)


@pytest.fixture
def matmul_task():
    """A new task: C[13, 11] = A[13, 7] * B[7, 11] on target c."""
    return ansor.SearchTask(
        "matmul", (13, 11, 7), target="c", hardware_params=ansor.HardwareParams(num_cores=2, vector_unit_bytes=32)
    )


@pytest.fixture
def refused(capsys):
    """`refused(words, text, *codes)`: the command ends with one of the codes, or 2, and says why in one sentence."""

    def refuse(words, text, *codes):
        capsys.readouterr()
        assert main([*words]) in (codes or (2,))
        err = capsys.readouterr().err
        assert text in err and err.startswith("ansor: ") and err.count("\n") == 1, err
        return err

    return refuse


@pytest.fixture
def states(matmul_task):
    """`n` distinct programs of `matmul_task`: states that differ may be lowered to the same loop nest."""

    def make(n, task=matmul_task):
        policy = ansor.SketchPolicy(
            task, ansor.RandomModel(0), seed=5, params={"sample_init_min_population": 1}, verbose=0
        )
        found = {str(te.lower(s)): s for s in policy.ask(2 * n)}
        assert len(found) >= n
        return list(found.values())[:n]

    return make


@pytest.fixture
def faults(tmp_path, monkeypatch, matmul_task):
    """`faults(words)` makes target c a backend that misbehaves word by word."""
    place = tmp_path / "faults"
    place.mkdir()
    before = ansor.register_backend("c", "tests.ansor.faulty_backend")
    monkeypatch.setenv("FAULTS", str(place))

    def script(words):
        (place / "script").write_text("\n".join(words))
        return place

    yield script
    ansor.register_backend("c", before)


@pytest.fixture
def record(matmul_task, states):
    """`record(cost, error_no)` gives an (input, result) pair with a program of its own."""
    numbers = itertools.count(1)
    made = states(8)

    def make(cost=1e-3, error_no=0, task=matmul_task):
        k = next(numbers)
        costs = (cost,) if error_no == 0 else (1e10,)
        result = ansor.MeasureResult(costs, error_no, "", 0.25 + k, 1_700_000_000 + k)
        return ansor.MeasureInput(task, made[k % len(made)]), result

    return make


@pytest.fixture
def golden_log():
    """`golden_log("cpu")` gives the path of a TVM log and the programs it should replay to."""

    def load(name):
        path = GOLDEN / f"tvm_log_matmul1024_{name}.json"
        return path, [e["program"] for e in json.loads(path.with_suffix(".bounds.json").read_text())]

    return load
