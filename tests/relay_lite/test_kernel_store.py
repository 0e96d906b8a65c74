"""Kernels that are kept: a build takes what an equal one has made, by the same code, and nothing else."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.core.device.network_plan import KernelCode
from ansor.policy import made_ahead
from ansor.policy.made_ahead import Made
from ansor.sketch.plain import plain_state
from codegen_c.errors import CompileError
from codegen_c.network import CNetworkBackend
from relay_lite import reference
from relay_lite.compiler import group_programs, kernels
from relay_lite.compiler.build import build, compile_fused
from relay_lite.compiler.optimize import extract_tasks
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Constant, Expr, Function, FunctionCall
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.runtime.library import NetworkLibrary
from te_lite.loops.stmt import LoweredFunc


def network(weight: Expr | None = None) -> Function:
    """A dense layer of an exponential, turned: the weight is constant, and packed, unless one is given."""
    x = var("x", (3, 32))
    drawn = np.random.default_rng(0).uniform(-1, 1, (48, 32)).astype("float32")
    body = call("transpose", call("nn.dense", call("exp", x), weight or Constant(drawn)), axes=(1, 0))
    return Function((x,) if weight is None else (x, weight), body)  # type: ignore[arg-type]


KERNELS = ["fused_exp", "fused_nn_dense_packed", "fused_transpose"]


def plain(names: Sequence[str] = ("first", "second"), ops: Sequence[str] = ("tanh", "exp")) -> Function:
    """Two kernels that nobody searches: fused groups of one operator each, called by these names."""
    x = value = var("x", (3, 32))
    for name, op in zip(names, ops, strict=True):
        v = var("v", (3, 32))
        value = FunctionCall(Function((v,), call(op, v), {"primitive": True, "name": name}), (value,))  # type: ignore[assignment]
    return Function((x,), value)


def build_plain(function: Function | None = None) -> NetworkLibrary:
    return compile_fused(function or plain(), ansor.Target("c"))


def check(lib: NetworkLibrary, function: Function) -> None:
    module = GraphModule(lib["default"]())
    (x,) = function.params
    given = np.random.default_rng(0).uniform(-1, 1, x.shape).astype("float32")
    module.run(x=given)
    want = reference.run(function, [given])
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-5, atol=1e-6)


def digest(lib: NetworkLibrary) -> str:
    """Of all that a build makes."""
    parts = [*lib.binaries.items(), *[(name, code.source.encode()) for name, code in lib.kernels.items()]]
    parts += [(name, value.tobytes()) for name, value in lib.values.items()]
    text = "".join(f"{name} {hashlib.sha256(data).hexdigest()}\n" for name, data in parts)
    return hashlib.sha256((text + lib.graph_json).encode()).hexdigest()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("CODEGEN_C_CACHE", str(tmp_path / "store"))
    return tmp_path / "store"


@pytest.fixture
def chosen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the kernels that are searched, lowered and verified from now on."""
    names: list[str] = []
    choose = kernels.choose_program

    def counted(*args: object) -> object:
        program = choose(*args)  # type: ignore[arg-type]
        names.append(program.name)
        return program

    monkeypatch.setattr(kernels, "choose_program", counted)
    return names


FRESH = """
from relay_lite.compiler import group_programs, kernels
from tests.relay_lite.test_kernel_store import build, check, digest, network

def never(*args):
    raise AssertionError("a program was chosen")

kernels.choose_program = never
lib = build(network(), target="c")
check(lib, network())
print(digest(lib))
"""


@pytest.mark.long
def test_a_fresh_process_takes_what_is_kept(store: Path, chosen: list[str]) -> None:
    first = build(network(), target="c")
    assert chosen == list(first.kernels) == KERNELS and len(list(store.glob("*.kernel"))) == 3
    done = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == digest(first), done.stderr
    assert digest(build(network(), target="c")) == digest(first) and len(chosen) == 3


def test_one_thread_and_many_make_the_same(
    store: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, chosen: list[str]
) -> None:
    made = []
    for count in (1, 3):
        monkeypatch.setenv("CODEGEN_C_CACHE", str(tmp_path / str(count)))
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, count=count: set(range(count)))
        made.append(build(network(), target="c"))
    assert digest(made[0]) == digest(made[1]) and chosen == [*KERNELS, *KERNELS]
    check(made[1], network())


def test_workers_make_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They draw programs where weights may be packed, and make kernels where none may."""
    made, took = [], list[Made]()
    plain = Made.of

    def of(answered: dict[str, Any], name: str) -> Made:
        took.append(plain(answered, name))
        return took[-1]

    monkeypatch.setattr(Made, "of", staticmethod(of))
    monkeypatch.setattr(made_ahead, "host_cores", lambda: 2)
    for least in (float("inf"), 0.0):
        monkeypatch.setenv("CODEGEN_C_CACHE", str(tmp_path / str(least)))
        monkeypatch.setattr(group_programs, "REMEMBERED", made_ahead.Remembered())
        monkeypatch.setattr(made_ahead, "LEAST", least)
        made.append(build(network(), target="c"))
    assert digest(made[0]) == digest(made[1])
    assert sorted(one.kernel.name for one in took if one.kernel) == ["fused_exp", "fused_transpose"]
    assert {one.kernel for one in took if one.drawn} == {None}
    check(made[1], network())


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "another program": lambda data: data.replace(b"void ", b"Void ", 1),
    "cut": lambda data: data[:-1],
    "empty": lambda data: b"",
    "a changed byte of machine code": lambda data: data[:-200] + bytes([data[-200] ^ 1]) + data[-199:],
}


def test_a_damaged_kernel_is_made_again(store: Path, chosen: list[str]) -> None:
    first = build_plain()
    for k, damage in enumerate(DAMAGES.values()):
        path = sorted(store.glob("*.kernel"))[k % 2]
        whole = path.read_bytes()
        changed = damage(whole)
        assert changed != whole
        path.write_bytes(changed)
        chosen.clear()
        again = build_plain()
        assert len(chosen) == 1 and digest(again) == digest(first) and path.read_bytes() == whole
    check(again, plain())


CHANGES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the code of a package": lambda change: change.setattr(
        kernels, "source_digest", lambda package: f"other {package}"
    ),
    "the compiler": lambda change: change.setattr("codegen_c.network.OBJECT_FLAGS", ("-O2", "-fPIC", "-fopenmp", "-c")),
    "the machine": lambda change: change.setattr(CNetworkBackend, "machine", lambda self, target: {"machine": "other"}),
    "the cores": lambda change: change.setenv("TVM_NUM_THREADS", "17"),
}


def test_what_was_made_in_another_way_is_not_taken(store: Path, chosen: list[str]) -> None:
    build_plain()
    count = len(chosen)
    for k, change in enumerate(CHANGES.values()):
        with pytest.MonkeyPatch.context() as patch:
            change(patch)
            build_plain()
        assert len(chosen) == (k + 2) * count
    build_plain()
    assert len(chosen) == (len(CHANGES) + 1) * count


def test_a_weight_that_cannot_be_packed_is_another_kernel(store: Path, chosen: list[str]) -> None:
    build(network(), target="c")
    lib = build(network(var("w", (48, 32))), target="c")
    assert chosen == [*KERNELS, "fused_nn_dense"] and set(lib.kernels) == {KERNELS[0], "fused_nn_dense", KERNELS[2]}


def test_a_record_is_another_kernel(store: Path, chosen: list[str]) -> None:
    """It is kept under its own steps, and taken for them alone."""
    (task,), _ = extract_tasks(network(), None, "c")
    plain_one, second = build(network(), target="c"), plain_state(task)
    for _ in range(2):
        with ansor.ApplyHistoryBest(None) as context:
            context.update("c", task.workload_key, second)
            recorded = build(network(), target="c")
    assert len(chosen) == 4 and digest(recorded) != digest(plain_one) == digest(build(network(), target="c"))
    check(recorded, network())


def test_a_kernel_that_fails_names_itself_and_is_not_kept(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_whole = CNetworkBackend.compile

    def broken(self: CNetworkBackend, func: LoweredFunc, code: KernelCode, target: str) -> bytes:
        source = code.source.replace("void fused_nn_dense", "void? fused_nn_dense")
        return compile_whole(self, func, replace(code, source=source), target)

    with monkeypatch.context() as patch:
        patch.setattr(CNetworkBackend, "compile", broken)
        with pytest.raises(CompileError, match=r"^compile: \S+ refuses kernel fused_nn_dense_packed: .*error"):
            build(network(), target="c")
    assert len(list(store.glob("*.kernel"))) < 3
    check(build(network(), target="c"), network())
    assert len(list(store.glob("*.kernel"))) == 3


def test_a_store_that_others_can_write_is_refused(store: Path) -> None:
    store.mkdir(mode=0o777)
    store.chmod(0o777)
    with pytest.raises(CompileError, match="others may write it"):
        build_plain()


def test_names_do_not_depend_on_what_is_kept(store: Path, chosen: list[str]) -> None:
    """Two groups of one name are two kernels, the first of which has the plain name."""
    same = ("same", "same")
    for function in (plain(same), plain(same, ("exp", "tanh")), plain(same)):
        lib = build_plain(function)
        assert list(lib.kernels) == ["same", "same_1"]
        check(lib, function)
    assert len(chosen) == 4
