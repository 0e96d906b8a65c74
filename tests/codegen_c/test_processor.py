"""`-march` and `-mcpu` of a target: programs are written and compiled for the processor that is named."""

from __future__ import annotations

import platform
from pathlib import Path

import numpy as np
import pytest

import ansor
import relay_lite as relay
import te_lite as te
from ansor.sketch.plain import plain_state
from codegen_c import host_options, processor
from codegen_c.backend import BACKEND, LIBRARY
from codegen_c.compile import FLAGS
from codegen_c.errors import CompileError
from codegen_c.processor import NATIVE, check_processor, flags_for, options_for, processor_flag
from relay_lite.runtime.graph_executor import GraphModule
from tests.workloads import matmul

X86 = platform.machine() in ("x86_64", "AMD64")
OLD = "c -march=x86-64"
needs_x86 = pytest.mark.skipif(not X86, reason="names an x86 processor")


@pytest.mark.parametrize(("machine", "target", "flag"), [
    ("x86_64", "c", NATIVE),
    ("x86_64", "llvm -keys=cpu -mcpu=skylake-avx512", "-march=skylake-avx512"),
    ("aarch64", "llvm -mcpu=neoverse-n1", "-mcpu=neoverse-n1"),
    ("aarch64", "c -march=armv8.2-a -mcpu=neoverse-n1", "-march=armv8.2-a"),
    ("x86_64", "a_kind_of_ones_own -march=haswell", "-march=haswell"),
])  # fmt: skip
def test_what_the_compiler_is_told(machine: str, target: str, flag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert processor_flag(target) == flag
    assert flags_for(target) == tuple([flag if f == NATIVE else f for f in FLAGS])


def test_a_processor_that_the_compiler_does_not_know_is_refused() -> None:
    with pytest.raises(CompileError, match=r"does not know the processor: .*no_such_chip"):
        check_processor("c -mcpu=no_such_chip")


@pytest.mark.parametrize(("theirs", "family", "bytes_"), [
    (("__AVX2__", "__AVX512F__", "__AVX512VL__"), "avx512vl", 64),
    (("__AVX2__", "__AVX512F__"), "avx512", 64),
    (("__AVX2__", "__haswell__"), "avx2", 32),
    (("__SSE2__",), "sse", 16),
])  # fmt: skip
def test_its_macros_say_what_it_can_do(
    theirs: tuple[str, ...], family: str, bytes_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = frozenset((*theirs, "__FMA__"))
    monkeypatch.setattr(processor, "macros_of", lambda command, flag: own if flag == NATIVE else frozenset(theirs))
    found = options_for("c -march=made_up")
    assert (found.vector_bytes, found.masks) == (bytes_, family == "avx512vl")
    assert options_for("c") == host_options()
    monkeypatch.setattr(processor, "macros_of", lambda command, flag: frozenset(theirs) if flag == NATIVE else own)
    with pytest.raises(CompileError, match=r"this processor lacks instructions .*__FMA__"):
        options_for("c -march=made_up")


@needs_x86
def test_a_program_is_written_compiled_and_run_for_it(tmp_path: Path) -> None:
    task = ansor.SearchTask(matmul, (24, 20, 36), target=OLD)
    func = te.lower(plain_state(task), task.compute_dag.tensors)
    a, b = np.random.default_rng(0).random((2, 24 * 36), "float32")
    a, b, c = a.reshape(24, 36), b[: 36 * 20].reshape(36, 20), np.zeros((24, 20), "float32")
    BACKEND.module(func, OLD)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    for name, target in (("old", OLD), ("own", "c")):
        (tmp_path / name).mkdir()
        BACKEND.build(func, target, str(tmp_path / name))
    old, own = [(tmp_path / name / LIBRARY).read_bytes() for name in ("old", "own")]
    assert old != own
    device = BACKEND.open(0)
    handles = [device.put(x) for x in (a, b, np.zeros_like(c))]
    device.load(str(tmp_path / "old")).run(handles)
    np.testing.assert_allclose(handles[2], a @ b, rtol=1e-5)
    assert options_for(OLD).vector_bytes == 16


@needs_x86
def test_a_network_is_compiled_for_it() -> None:
    data, weight = relay.var("data", shape=(3, 8)), np.arange(40, dtype="float32").reshape(5, 8) / 40
    function = relay.Function([data], relay.nn.relu(relay.nn.dense(data, relay.const(weight))))
    x = np.random.default_rng(0).random((3, 8), "float32")
    outputs = []
    for target in (OLD, "c"):
        module = GraphModule(relay.build(function, target=target)["default"](ansor.cpu()))
        module.run(data=x)
        outputs.append(module.get_output(0).numpy())
        np.testing.assert_allclose(outputs[-1], x @ weight.T, rtol=1e-5)


def test_programs_for_other_machines_are_for_the_processors_that_are_there() -> None:
    BACKEND.check_portable("c")
    with pytest.raises(CompileError, match="leave it out"):
        BACKEND.check_portable(OLD)


def test_a_record_says_it(tmp_path: Path) -> None:
    task = ansor.SearchTask(matmul, (24, 20, 36), target=OLD)
    log = tmp_path / "log.json"
    inp = ansor.MeasureInput(task, task.compute_dag.init_state)
    ansor.RecordToFile(log).callback(None, [inp], [ansor.MeasureResult((1e-3,), 0, "", 0.1, 1_700_000_000)])
    ((again, _),) = ansor.load_records(log)
    assert str(again.task.target) == OLD and again.task.target.attrs == {"march": "x86-64"}
