"""A device's host without a network: what it is sent, what it answers, and what it refuses."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.cluster.host import DeviceHost
from ansor.cluster.message import pack, unpack
from ansor.cluster.request import sent_task
from ansor.cluster.runner import PortableBuilder, _files, _inputs
from ansor.core.host.process import host_family
from ansor.core.tasks.measure_values import BuildResult, RunOptions
from ansor.measure import MeasureErrorNo as E
from ansor.measure.channel import result_from_json, task_payload
from codegen_c.processor import PROCESSORS
from tests.ansor.conftest import faults, matmul_task, states
from tests.spoiled import spoiled
from tests.workloads import matmul

__all__ = ["faults", "matmul_task", "states"]
OPTIONS = {k: v for k, v in asdict(RunOptions(1, 2, timeout=3.0, prepare_timeout=60.0)).items() if k != "retries"}


@pytest.fixture
def host() -> Iterator[DeviceHost]:
    made = DeviceHost(json.dumps({"label": "box c 0", "kind": "c", "index": 0, "backends": {}, "threads": "1"}))
    yield made
    made.close()


def header_of(task: ansor.SearchTask) -> dict[str, Any]:
    return {
        "op": "run", "lease": 1, "task": task_payload(task)["task"], "options": OPTIONS,
        "programs": [{"packed": [], "seconds": 0.5}],
    }  # fmt: skip


def ask(host: DeviceHost, task: ansor.SearchTask, files: dict[str, bytes], **more: Any) -> dict[str, Any]:
    return unpack(host.measure(pack({**header_of(task), **more}, files)))[0]


def task_data(task: ansor.SearchTask) -> dict[str, Any]:
    return {**{k: v for k, v in task_payload(task).items() if k != "backend"}, "name": task.name}


def built(task: ansor.SearchTask, state: Any) -> BuildResult:
    builder = PortableBuilder(n_parallel=1)
    result = builder.submit(ansor.MeasureInput(task, state)).result()
    assert result.error_no == 0, result.error_msg
    keep = Path(result.filename).rename(Path(result.filename).parent.parent / Path(result.filename).name)
    builder.close()
    return BuildResult(str(keep), result.args, 0, "", 0.5)


def test_c_comes_as_text_and_is_compiled_by_the_host(host: DeviceHost, matmul_task: Any, states: Any) -> None:
    program = built(matmul_task, states(1)[0])
    names = sorted(p.name for p in Path(program.filename).iterdir())
    assert names == sorted(["program.json", *[f"program.{family}.c" for family in PROCESSORS]])
    files = _files(matmul_task, [program])
    assert not Path(program.filename).exists()
    assert ask(host, matmul_task, files) == {"need": "task"}
    first = ask(host, matmul_task, files, task_data=task_data(matmul_task))
    result = result_from_json(first["result"])
    assert result.ok and len(result.costs) == 2 and result.device == "box c 0" and result.all_cost > 0.5
    assert result_from_json(ask(host, matmul_task, files)["result"]).ok, "it knows the task now"
    wrong = {name: data.replace(b" += ", b" -= ") for name, data in files.items()}
    assert ask(host, matmul_task, wrong)["result"][1] == E.WRONG_ANSWER
    unchecked = {**OPTIONS, "check_correctness": False}
    assert ask(host, matmul_task, wrong, options=unchecked)["result"][1] == 0
    broken = {name: data + b"}" * name.endswith(".c") for name, data in files.items()}
    assert ask(host, matmul_task, broken)["result"][1] == E.COMPILE_DEVICE
    both = {**files, **{name.replace("0/", "1/"): data for name, data in files.items()}}
    times = ask(host, matmul_task, both, op="compare", programs=[{"packed": [], "seconds": 0.0}] * 2)["times"]
    assert len(times) == 2 and all(len(t) > 1 and min(t) > 0 for t in times)


def test_text_for_another_processor_is_refused(host: DeviceHost, matmul_task: Any, states: Any) -> None:
    """A builder that builds for this machine leaves one text."""
    builder = ansor.LocalBuilder(n_parallel=1)
    files = _files(matmul_task, [builder.submit(ansor.MeasureInput(matmul_task, states(1)[0])).result()])
    builder.close()
    assert sorted(files) == ["0/program.c", "0/program.json"]
    data = task_data(matmul_task)
    assert ask(host, matmul_task, files, task_data=data)["result"][1] == 0
    other = next(family for family in PROCESSORS if family != host_family())
    facts = {**json.loads(files["0/program.json"]), "family": other}
    result = ask(host, matmul_task, {**files, "0/program.json": json.dumps(facts).encode()})["result"]
    assert result[1] == E.COMPILE_DEVICE and f"got family={other!r}" in result[2]


def test_own_inputs_travel(host: DeviceHost) -> None:
    a = np.zeros((13, 7), np.float32)
    task = ansor.SearchTask("matmul", (13, 11, 7), target="c", task_inputs={"A": a})
    files = {**_files(task, [built(task, task.compute_dag.init_state)]), **_inputs(task)}
    assert ask(host, task, files, task_data=task_data(task))["result"][1] == 0
    wrong = {name: data.replace(b" = 0.0f", b" = 1.0f") for name, data in files.items()}
    result = ask(host, task, wrong)["result"]
    assert result[1] == E.WRONG_ANSWER and "not 0" in result[2], files


@pytest.mark.long
def test_a_worker_that_dies_or_hangs_costs_one_retry(faults: Any, matmul_task: Any, states: Any) -> None:
    place = faults(["good"])
    host = DeviceHost(json.dumps({"label": "x", "kind": "c", "index": 0, "backends": {}, "threads": None}))
    for fault, error_no, lost in (("run_segv", E.RUNTIME_DEVICE, 2), ("run_hang", E.RUN_TIMEOUT, 2), ("good", 0, 0)):
        files = {"0/fault.json": json.dumps(fault).encode()}
        answer = ask(host, matmul_task, files, task_data=task_data(matmul_task), options={**OPTIONS, "timeout": 0.7})
        assert (answer["result"][1], answer["lost"]) == (error_no, lost), answer
    assert not (place / "count").exists(), "hosts build nothing"
    host.close()


def test_a_run_can_be_interrupted_and_the_next_one_is_fine(faults: Any, matmul_task: Any, states: Any) -> None:
    faults(["good"])
    host = DeviceHost(json.dumps({"label": "x", "kind": "c", "index": 0, "backends": {}, "threads": None}))
    data = task_data(matmul_task)
    good, hang = ({"0/fault.json": json.dumps(word).encode()} for word in ("good", "run_hang"))
    assert ask(host, matmul_task, good, task_data=data)["result"][1] == 0
    answers: list[dict[str, Any]] = []
    options = {**OPTIONS, "timeout": 100.0}
    thread = threading.Thread(target=lambda: answers.append(ask(host, matmul_task, hang, lease=5, options=options)))
    thread.start()
    time.sleep(0.5)
    host.interrupt(4)
    host.interrupt(5)
    thread.join(20)
    assert answers and answers[0]["result"][1] == E.RUNTIME_DEVICE
    assert ask(host, matmul_task, good)["result"][1] == 0
    host.close()


def test_a_host_of_a_gpu_takes_tasks() -> None:
    """What a task says of its hardware stays with the search; the host's own numbers must not refuse it."""
    dag = ansor.ComputeDAG(list(matmul(6, 5, 4)))
    task = ansor.SearchTask(compute_dag=dag, target="cuda -arch=sm_90")
    assert sent_task("cuda", task_data(task), {}).compute_dag.flop_ct == dag.flop_ct


def test_refusals_are_one_sentence(host: DeviceHost, matmul_task: Any) -> None:
    data = task_data(matmul_task)
    for more, text in (
        ({"task_data": {**data, "kind": "cuda"}}, "box c 0: device: it runs programs of target 'c', got task='cuda'"),
        ({"task_data": {**data, "target": "fpga"}}, "box c 0: "),
    ):
        refused = ask(host, matmul_task, {}, **more)
        assert refused["refusal"].startswith(text) and "\n" not in refused["refusal"]
    assert ask(host, matmul_task, {"0/../x": b""}, task_data=data)["refusal"].endswith("got '../x'")
    assert "cannot be read" in unpack(host.measure(b"nonsense"))[0]["refusal"]


@pytest.mark.parametrize("to", ["measure", "session"])
def test_spoiled_headers_are_refused_in_a_sentence(to: str, host: DeviceHost, matmul_task: Any) -> None:
    """Nothing that is said ends the host: it answers, and refuses most of it."""
    good = {
        "measure": {**header_of(matmul_task), "task_data": task_data(matmul_task)},
        "session": {"op": "run", "lease": 1, "name": "x", "number": 1, "repeat": 1, "timeout": 0.1},
    }[to]
    files = {"0/program.json": b"{}", "input/A": b"no array"}
    rng, refused = np.random.default_rng(8), 0
    for _ in range(300):
        place = list(good)[int(rng.integers(len(good)))]
        header = {**good, place: spoiled(good[place], rng)}
        answer = unpack(getattr(host, to)(pack(header, files)))[0]
        refused += "refusal" in answer
        assert "\n" not in answer.get("refusal", "")
    assert refused > 250


@pytest.mark.parametrize(("missing", "law"), [("lease", "an object with 'lease'"), ("op", "an object with 'op'")])
def test_a_refusal_names_what_is_missing(missing: str, law: str, host: DeviceHost, matmul_task: Any) -> None:
    header = {k: v for k, v in header_of(matmul_task).items() if k != missing}
    assert f"message: {law} is needed, got {{" in unpack(host.measure(pack(header)))[0]["refusal"]
    assert f"message: {law} is needed, got {{" in unpack(host.session(pack(header)))[0]["refusal"]
