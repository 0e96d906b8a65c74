"""Record lines: TVM's are read and written back, hostile ones are refused in one sentence, nothing runs."""

import json
import re
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.records.journal import MAX_LINE
from ansor.records.lines import dump_record_to_string, load_record_from_string
from te_lite.errors import RecordError
from te_lite.schedule.loop_steps import (
    Annotate,
    FollowFusedSplit,
    FollowSplit,
    FreePragma,
    Fuse,
    Pragma,
    Reorder,
    Split,
)
from te_lite.schedule.place_steps import ComputeAt, ComputeInline, ComputeRoot
from te_lite.schedule.stage_steps import CacheRead, CacheWrite, RFactor
from te_lite.schedule.storage_steps import StorageAlign
from tests.nonempty import nonempty

STEPS = [
    Annotate(2, 1, "vectorize"), Fuse(3, (0, 1)), Pragma(2, 0, "auto_unroll_max_step$64"), Reorder(2, (1, 0, 2)),
    Split(2, 0, 13, (2, 3), True), Split(2, 0, 0, (2,), False), FollowSplit(3, 0, 1, 2),
    FollowFusedSplit(3, 0, (1, 2), 1, True), StorageAlign(2, 1, 32, 8), ComputeAt(2, 3, 1), ComputeInline(1),
    ComputeRoot(1), CacheRead(0, "shared", (2,)), CacheWrite(2, "local"), RFactor(2, 3, 0),
]  # fmt: skip


def test_every_step_kind_survives(matmul_task):
    result = ansor.MeasureResult((1.25e-3, 1 / 3), 0, "", 7.000000001, 1_700_000_000)
    line = dump_record_to_string(ansor.MeasureInput(matmul_task, steps=STEPS), result)
    inp, res = load_record_from_string(line)
    assert list(inp.steps) == STEPS and res == result and json.loads(line)["v"] == "v0.6"
    own = dump_record_to_string(ansor.MeasureInput(matmul_task, steps=[FreePragma(2, 0, "unroll_explicit$1")]), result)
    assert json.loads(own)["v"] == "ansor-v1"
    assert load_record_from_string(own)[0].steps == (FreePragma(2, 0, "unroll_explicit$1"),)


def test_a_state_survives(matmul_task, states):
    for state in nonempty(states(20)):
        inp = ansor.MeasureInput(matmul_task, state)
        loaded, _ = load_record_from_string(dump_record_to_string(inp, ansor.MeasureResult((1.0,), 0, "", 1.0, 0)))
        assert loaded.state == state and loaded.task.workload_key == matmul_task.workload_key
        assert loaded.task.hardware_params == matmul_task.hardware_params and str(loaded.task.target) == "c"


@pytest.mark.parametrize("name", ["cpu", "cuda_h200"])
def test_tvm_logs_load_replay_and_print(name, golden_log):
    path, programs = golden_log(name)
    inputs, results = ansor.RecordReader(path).read_lines()
    assert len(inputs) == 64 and len(programs) == 64
    for inp, res, line, program in zip(inputs, results, path.read_text().splitlines(), programs, strict=True):
        assert str(inp.task.compute_dag.infer_bound_from_state(inp.state)) == program
        assert json.loads(dump_record_to_string(inp, res)) == json.loads(line)
    target = "cuda" if name != "cpu" else "c -mcpu=skylake-avx512"
    best, cost = ansor.load_best_record(path, inputs[0].task.workload_key, target)
    assert cost.cost == min(r.cost for r in results if r.ok) and best.state.stages
    assert ansor.load_best_record(path, target="cuda" if name == "cpu" else "c") == (None, None)


def test_hash_keys_need_their_tensors():
    def tensors(n):
        a = te.placeholder((n, 4), name="A")
        return [a, te.compute((n, 4), lambda i, j: a[i, j] * 3.0, name="B")]

    dag = ansor.ComputeDAG(tensors(5))
    key = dag.workload_key()
    state = dag.init_state
    task = ansor.SearchTask(compute_dag=dag, target="c")
    line = dump_record_to_string(ansor.MeasureInput(task, state), ansor.MeasureResult((1.0,), 0, "", 1.0, 0))
    assert load_record_from_string(line)[0].state == state
    other = json.loads(line)
    other["i"][0][0] = json.dumps(["0" * 32, [5, 4], [5, 4]])
    inp, _ = load_record_from_string(json.dumps(other))
    with pytest.raises(ansor.TaskError, match="is not registered"):
        _ = inp.task.compute_dag
    ansor.register_workload_tensors(other["i"][0][0], tensors(5))
    assert load_record_from_string(json.dumps(other))[0].task.compute_dag.workload_key() == key


def test_older_lines_and_comments(tmp_path, record):
    new = json.loads(dump_record_to_string(*record()))
    lines = ["# a comment", " another", ""]
    for length, version in ((2, "v0.2"), (5, "v0.5"), (6, "v0.6")):
        lines.append(json.dumps({**new, "v": version, "i": [new["i"][0][:length], new["i"][1]]}))
    (tmp_path / "log").write_text("\n".join(lines))
    reader = ansor.RecordReader(tmp_path / "log")
    inputs, _ = reader.read_lines()
    assert len(inputs) == 3 and reader.num_bad == 0
    assert inputs[0].task.hardware_params.num_cores >= 1 and inputs[2].task.hardware_params.num_cores == 2
    assert len(reader.read_lines(max_lines=1, skip_lines=1)[0]) == 1


def hostile(good):
    """Lines that are no records."""

    def with_(path, value):
        data = json.loads(good)
        place = data
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        return json.dumps(data)

    yield from (b"\xff\xfe\x00", b"\x00" * 50, b"{}", b"[]", b"null", b"3", b'"text"', b"{")
    yield good[: len(good) // 2].encode()
    yield b"[" * 100_000
    yield b'{"a":' * 50_000
    yield b"cos\nsystem\n(S'touch canary'\ntR."
    yield b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x8c\x06system\x93\x8c\x0ctouch canary\x85R."
    yield good.replace("0.001", "NaN").encode()
    yield good.replace("0.001", "Infinity").encode()
    yield good.replace("0.001", "1e999").encode()
    yield good.replace("0.001", "-0.5").encode()
    yield good.replace("0.001", "9" * 5000).encode()
    yield good.replace('"v":', '"v": "v0.6", "v":').encode()
    for path, value in (
        (("v",), "v9.9"), (("v",), None), (("v",), ["v0.6"]), (("x",), 1), (("i",), None), (("i",), [[], []]),
        (("i", 0), []), (("i", 0, 0), 5), (("i", 0, 1), None), (("i", 0, 2), [1, 2]), (("i", 0, 2, 0), "1"),
        (("i", 0, 2, 0), 10**400), (("i", 0, 3), 7), (("i", 0, 4), 3), (("i", 0, 5), "A"), (("i", 0, 5), [1]),
        (("i", 1), [[]]), (("i", 1, 0), [1]), (("i", 1, 1), {}), (("i", 1, 1), [1]), (("i", 1, 1), [[]]),
        (("i", 1, 1), [["XX", 1]]), (("i", 1, 1), [["SP", 2, 0, 13, [0], 1]]),
        (("i", 1, 1), [["SP", 2, 0, 13, [1.5], 1]]),
        (("i", 1, 1), [["SP", -1, 0, 13, [2], 1]]), (("i", 1, 1), [["SP", 2, 0, 13, [2]]]),
        (("i", 1, 1), [["AN", 2, 0, 99]]), (("i", 1, 1), [["CHR", 2, "__import__('os')", [1]]]),
        (("i", 1, 1), [["SP", 10**30, 0, 13, [2], 1]]), (("i", 1, 1), [["SP", True, 0, 13, [2], 1]]),
        (("i", 1, 1), [["FU", 2, [[[0]]]]]), (("r",), []), (("r", 0), []), (("r", 0), ["1"]), (("r", 0), [True]),
        (("r", 0), [10**400]), (("r", 0), [0.0]), (("r", 1), -1), (("r", 1), 0.5), (("r", 2), None), (("r", 3), "now"),
        (("r", 3), 10**400),
    ):  # fmt: skip
        yield with_(path, value).encode()


def test_hostile_lines_are_refused_and_skipped(tmp_path, record, monkeypatch):
    monkeypatch.chdir(tmp_path)
    good = dump_record_to_string(*record())
    bad = list(hostile(good))
    for line in bad:
        with pytest.raises(RecordError) as info:
            load_record_from_string(line)
        assert len(str(info.value)) < 400 and "\n" not in str(info.value)
    chunks = [c for line in bad for c in (line.replace(b"\n", b" ") or b" ", good.encode())]
    (tmp_path / "log").write_bytes(b"\n".join(chunks) + b"\n")
    reader = ansor.RecordReader(tmp_path / "log")
    assert len(list(reader)) == len(bad)
    assert reader.num_bad + sum(c[:1] in (b"#", b" ") for c in chunks) == len(bad) and len(reader.bad) == reader.KEPT
    assert "unreadable lines were skipped" in reader.complaint()
    assert not (tmp_path / "canary").exists()


def test_a_huge_line_takes_bounded_memory(tmp_path, record):
    good = dump_record_to_string(*record()).encode()
    with open(tmp_path / "log", "wb") as f:
        f.write(good + b"\n")
        for _ in range(100):
            f.write(b"[" * 1_000_000)
        f.write(b"\n" + good + b"\n" + b"[0," * (MAX_LINE // 3 - 10) + b"\n")
    tracemalloc.start()
    reader = ansor.RecordReader(tmp_path / "log")
    assert len(list(reader)) == 2 and reader.num_bad == 2
    assert tracemalloc.get_traced_memory()[1] < 64 << 20
    tracemalloc.stop()


def test_best_and_distill(tmp_path, record):
    log, out = tmp_path / "log", tmp_path / "best.json"
    other = ansor.SearchTask("matmul", (26, 22, 7), target="c")
    cuda = ansor.SearchTask("matmul", (13, 11, 7), target="cuda")
    pairs = [record(3e-3), record(1e-3), record(0, error_no=4), record(2e-3, task=other), record(5e-3, task=cuda)]
    pairs.append(record(1e-4, task=other))
    ansor.save_records(log, *zip(*pairs[:5], strict=True))
    assert ansor.distill_record_file(log, out) == 3
    assert sorted(r.cost for _, r in ansor.load_records(out)) == [1e-3, 2e-3, 5e-3]
    ansor.save_records(log, *zip(*pairs[5:], strict=True))
    assert ansor.distill_record_file(log, out) == 3
    assert sorted(r.cost for _, r in ansor.load_records(out)) == [1e-4, 1e-3, 5e-3]
    assert ansor.distill_record_file(log, log) == 3
    assert ansor.load_best_record(log, other.workload_key)[1].cost == 1e-4
    small = ansor.make_workload_key("matmul", (52, 44, 14))
    assert ansor.load_best_record(log, small) == (None, None)
    inp, res = ansor.load_best_record(log, small, include_compatible=True)
    assert res.cost == 1e-4 and inp.task.workload_key == other.workload_key


CODE = re.compile(r"import (?:pickle|marshal|shelve)|(?<![\w.])(?:eval|exec)\(|\bbuiltins\.(?:eval|exec)|yaml\.load")


def test_loaders_have_no_way_to_run_code():
    """Nor has anything else: logs, models, networks and messages are read all over the packages."""
    root, files = Path(ansor.__file__).parent.parent, 0
    for package in ("te_lite", "ansor", "codegen_c", "codegen_cuda", "relay_lite", "vta_sim"):
        for path in (root / package).rglob("*.py"):
            files += 1
            assert not CODE.findall(path.read_text()), path
    assert files > 300


def test_costs_are_written_only_when_they_can_be_read(matmul_task, states):
    inp = ansor.MeasureInput(matmul_task, states(1)[0])

    def result(cost, error_no=0, seconds=0.5):
        return ansor.MeasureResult((1e-3, cost), error_no, "", seconds, 0)

    for cost in (np.float32(0.25), np.float64(0.25), np.int32(2), 2):
        _, res = load_record_from_string(dump_record_to_string(inp, result(cost, seconds=np.float32(0.5))))
        assert res.costs == (1e-3, float(cost)) and res.all_cost == 0.5
    for cost in (float("inf"), float("nan"), np.float32("inf"), -1.0, None, "1"):
        for error_no in (0, 4):
            with pytest.raises(RecordError, match="record, costs: a finite number of seconds, at least 0, is needed"):
                dump_record_to_string(inp, result(cost, error_no))
    with pytest.raises(RecordError, match="record, seconds in all: a finite number"):
        dump_record_to_string(inp, result(1.0, seconds=float("inf")))
