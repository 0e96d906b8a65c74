"""Precision is asked for: targets, records and what reads them, and what the checker lets pass."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cli.main import main
from ansor.core.errors import TaskError
from ansor.core.target.target import PRECISIONS, Target
from ansor.measure.check import accepted_values, mismatch
from ansor.records.best import best_records, load_best_record
from ansor.records.lines import dump_record_to_string, load_record_from_string
from ansor_ext.tensor_core.fragment import Fragment
from ansor_ext.tensor_core.mma import mma
from ansor_ext.tensor_core.mma_meaning import gathered, multiply_add, scattered
from te_lite.errors import RecordError
from te_lite.meaning.interp import run
from te_lite.schedule.storage_steps import SetScope
from tests.ansor_ext.tensor_core.mma_schedules import PROGRAMS, RINGS, Tiled

ROUNDED = replace(RINGS["tf32"], sizes=(64, 64, 68))


def task(precision: str | None = None, target: str = "cuda", n: int = 32) -> ansor.SearchTask:
    return ansor.SearchTask("matmul", (n, n, n), target=target, precision=precision)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def result(seconds: float) -> ansor.MeasureResult:
    return ansor.MeasureResult((seconds,), 0, "", 1.0, 0)


@pytest.fixture
def programs() -> dict[str, ansor.MeasureInput]:
    """A program of a product for each precision; all but the strict one are on tensor cores."""
    tiled = {"tf32": PROGRAMS["tf32"], "fp32x3": replace(PROGRAMS["tf32"], name="m16n8k8_tf32x3_f32")}
    tensors = tiled["tf32"].tensors()
    tasks = {x: ansor.SearchTask(compute_dag=tensors, target="cuda", precision=x) for x in PRECISIONS}
    steps = {x: tiled[x].schedule(tensors).state.steps for x in tiled}
    return {x: ansor.MeasureInput(t, steps=steps.get(x, ())) for x, t in tasks.items()}


def test_the_precision_of_a_target() -> None:
    assert task().target.precision == task("strict").target.precision == "strict"
    assert task("tf32").target == Target("cuda -precision=tf32") == task(target="cuda -precision=tf32").target
    assert str(task("strict", "cuda -precision=tf32 -arch=sm_90").target) == "cuda -arch=sm_90"
    assert {x: task(x).target.results for x in PRECISIONS} == {
        "strict": "cuda", "tf32": "cuda tf32", "fp32x3": "cuda fp32x3",
    }  # fmt: skip


@pytest.mark.parametrize(
    "target, precision", [("cuda", "tf16"), ("c", "tf32"), ("c", "fp32x3"), ("cuda -precision=", None)]
)
def test_a_precision_that_a_target_lacks_is_refused(target: str, precision: str | None) -> None:
    with pytest.raises(TaskError, match="strict"):
        task(precision, target)


def test_records_say_the_precision_and_have_a_version_of_our_own(programs: dict[str, ansor.MeasureInput]) -> None:
    lines = {x: dump_record_to_string(inp, result(1.0)) for x, inp in programs.items()}
    versions = {x: json.loads(line)["v"] for x, line in lines.items()}
    assert versions == {"strict": "v0.6", "tf32": "ansor-v1", "fp32x3": "ansor-v1"}
    assert {x: load_record_from_string(line)[0].task.target.precision for x, line in lines.items()} == {
        x: x for x in lines
    }


@pytest.mark.parametrize("precision, other", [("tf32", "fp32x3"), ("fp32x3", "tf32")])
def test_a_record_of_another_precision_is_refused(
    programs: dict[str, ansor.MeasureInput], precision: str, other: str
) -> None:
    line = dump_record_to_string(programs[precision], result(1.0))
    for written in ("", f" -precision={other}"):
        with pytest.raises(RecordError, match=f"-precision={precision}"):
            load_record_from_string(line.replace(f" -precision={precision}", written))


def test_a_record_of_floats_that_are_rounded_to_the_nearest_is_one_of_tf32() -> None:
    tensors = ROUNDED.tensors()
    wanted = ansor.SearchTask(compute_dag=tensors, target="cuda -model=H200", precision="tf32")
    line = dump_record_to_string(ansor.MeasureInput(wanted, steps=ROUNDED.schedule(tensors).state.steps), result(1.0))
    assert "wgmma_k8_tf32_f32_nearest.a" in line
    assert load_record_from_string(line)[0].task.target == wanted.target
    for written in ("", " -precision=fp32x3"):
        with pytest.raises(RecordError, match="-precision=tf32"):
            load_record_from_string(line.replace(" -precision=tf32", written))


@pytest.mark.parametrize("precision, seconds", [("strict", 3.0), ("fp32x3", 2.0), ("tf32", 1.0)])
def test_no_result_is_served_for_another_precision(
    tmp_path, programs: dict[str, ansor.MeasureInput], precision: str, seconds: float
) -> None:
    log, wanted = tmp_path / "log.json", programs[precision].task
    pairs = [(programs[x], result(s)) for x, s in (("strict", 3.0), ("fp32x3", 2.0), ("tf32", 1.0))]
    ansor.save_records(log, *zip(*pairs, strict=True))
    found, best = load_best_record(log, wanted.workload_key, wanted.target)
    assert found is not None and best is not None and best.cost == seconds
    assert len(best_records(pairs)) == 3
    with ansor.ApplyHistoryBest(log):
        state = ansor.DispatchContext.current.query(wanted.target, wanted.workload_key)
    scopes = {s.scope.split(".")[1] for s in state.steps if isinstance(s, SetScope)}
    assert scopes == {"strict": set(), "tf32": {"m16n8k8_tf32_f32"}, "fp32x3": {"m16n8k8_tf32x3_f32"}}[precision]
    policy = ansor.SketchPolicy(wanted, verbose=0)
    assert policy.preload_measured_states(log) == 1
    other = load_best_record(tmp_path / "log.json", wanted.workload_key, "cuda -precision=tf32 -arch=sm_80")
    assert other[1] == pairs[2][1]


# ------------------------------------------------------------------------------------------------ the checker


def wrongness(tiled: Tiled, got: np.ndarray, inputs: list[np.ndarray], precision: str) -> str:
    tensors = tiled.tensors()
    dag = te.ComputeDAG(tensors)
    right = accepted_values(dag, dict(zip(tensors, inputs, strict=False)), precision)
    return mismatch(got, right[tensors[-1]])


@pytest.mark.parametrize("tiled", [PROGRAMS["tf32"], ROUNDED], ids=["centred", "nearest"])
def test_a_product_in_tf32_is_right_where_it_was_asked_for(rng: np.random.Generator, tiled: Tiled) -> None:
    tensors, inputs = tiled.tensors(), tiled.inputs(rng)
    got = np.full((tiled.sizes[0], tiled.sizes[1]), np.nan, "float32")
    run(te.lower(tiled.schedule(tensors), tensors), [*inputs, got])
    assert not wrongness(tiled, got, inputs, "tf32")
    assert "wrong" in wrongness(tiled, got, inputs, "strict")


def kept(x: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Numbers whose bits below 2^-13 of the power of two of `top` are cut off."""
    unit = 2.0 ** (np.floor(np.log2(np.abs(top) + 1e-30)) - 13)
    return np.trunc(x / unit) * unit


@pytest.mark.parametrize("terms", [64, 4096])
def test_floats_of_8_bits_are_right_by_sums_of_14_bits(rng: np.random.Generator, terms: int) -> None:
    """As a Hopper adds up the 32 terms of an instruction and what was there; not with an instruction left out."""
    tiled = replace(PROGRAMS["float8"], sizes=(16, 16, terms))
    inputs = tiled.inputs(rng)
    a, b = [x.astype("float64") for x in inputs]
    got = np.zeros((16, 16))
    for k in range(0, terms, 32):
        parts = np.concatenate([a[:, None, k : k + 32] * b[None, :, k : k + 32], got[..., None]], axis=-1)
        got = kept(parts, np.abs(parts).max(axis=-1, keepdims=True)).sum(axis=-1)
    assert np.abs(got - a @ b.T).max() > 1e-3
    assert not wrongness(tiled, got.astype("float32"), inputs, "strict")
    less = a[:, 32:] @ b[:, 32:].T
    assert "wrong" in wrongness(tiled, less.astype("float32"), inputs, "strict")


SIZES = (16, 8, 512)


def swapped(fragment: Fragment) -> Fragment:
    """The fragment with the two digits of its lanes in the other order."""
    return replace(fragment, lane=fragment.lane[::-1])


@pytest.mark.parametrize("operand", ["a", "b", "d"])
@pytest.mark.parametrize("planted", ["digits", "lane"])
@pytest.mark.parametrize("name", ["m16n8k8_tf32_f32", "m16n8k16_f16_f32", "m16n8k8_tf32x3_f32"])
def test_a_wrong_map_of_a_fragment_is_found(rng: np.random.Generator, name: str, operand: str, planted: str) -> None:
    op = mma(name)
    tiled = Tiled(name, SIZES, SIZES, (16, 8))
    a, b = tiled.inputs(rng)
    total = np.zeros((16, 8), "float32")

    def spoiled(which: str, tile: np.ndarray) -> np.ndarray:
        """The tile as the instruction sees it, where one operand is held by a wrong map."""
        f = op.fragment(which)
        if which != operand:
            return tile
        if planted == "lane":
            return gathered(f, np.roll(scattered(f, tile), 1, axis=0))
        return gathered(f, scattered(swapped(f), tile))

    for k in range(0, SIZES[2], op.k):
        total = multiply_add(op, spoiled("a", a[:, k : k + op.k]), spoiled("b", b[k : k + op.k]), total)
    precision = {"tf32": "tf32", "tf32x3": "fp32x3", "f16": "strict"}[op.element.name]
    assert "wrong" in wrongness(tiled, spoiled("d", total), [a, b], precision)
    right = np.zeros((16, 8), "float32")
    for k in range(0, SIZES[2], op.k):
        right = multiply_add(op, a[:, k : k + op.k], b[k : k + op.k], right)
    assert not wrongness(tiled, right, [a, b], precision)


# ------------------------------------------------------------------------------------------- the command line


def test_the_command_line_asks_for_it(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "matmul", "--target", "c", "--precision", "tf32"]) == 2
    assert "only GPUs have tensor cores" in capsys.readouterr().err
    asked: list[str] = []
    monkeypatch.setattr("ansor.cli.main.backend", lambda kind: SimpleNamespace(check=asked.append))
    line = ["tune", "matmul", "--shape", "64,64,64", "--target", "cuda -model=H200", "--trials", "0"]
    assert main([*line, "--log", "none.json", "--precision", "tf32", "--seed", "0"]) == 0
    assert asked == ["cuda -model=H200"]
    assert "on cuda -model=H200 -precision=tf32, not measured" in capsys.readouterr().out
