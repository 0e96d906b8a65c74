"""docs/not_here.md is true: each sentence that it quotes is said, each name that it calls missing is missing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import ansor
import relay_lite as relay
import te_lite as te
from ansor import autotvm
from ansor.core.device.export import export_program
from te_lite.schedule.schedule import Schedule, StageHandle
from tests.relay_lite.test_exported_programs import changed, open_extent

DOCUMENT = Path(__file__).parent.parent / "docs" / "not_here.md"
PLACES = {"te": te, "relay": relay, "ansor": ansor, "Stage": StageHandle, "Schedule": Schedule}


def rows() -> dict[str, str]:
    """What is not here, and what one meets."""
    lines = [line.strip().strip("|").split("|") for line in DOCUMENT.read_text().splitlines() if line.startswith("|")]
    cells = [(first.strip(), second.strip()) for first, second, _ in lines]
    found = [(what, met) for what, met in cells if what != "not here" and not set(what) <= {"-"}]
    assert len(dict(found)) == len(found), "two rows are called the same"
    return dict(found)


def missing() -> list[str]:
    """The names after `no`."""
    lists = [part for met in rows().values() for part in re.findall(r"\bno ((?:`[\w.]+`(?:, )?)+)", met)]
    return [name for part in lists for name in re.findall(r"`([\w.]+)`", part)]


@pytest.mark.parametrize("name", missing())
def test_a_missing_name_is_missing(name: str) -> None:
    first, *middle, last = name.split(".")
    place: Any = PLACES[first]
    for part in middle:
        place = getattr(place, part)
    assert not hasattr(place, last)


def onnx_model(op: str, shape: list[Any]) -> Any:
    helper = pytest.importorskip("onnx").helper
    x, y = helper.make_tensor_value_info("x", 1, shape), helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([helper.make_node(op, ["x"], ["y"])], "g", [x], [y])
    return relay.frontend.from_onnx(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]))


def open_task() -> Any:
    a = te.placeholder((te.size_var("n", 1, 4),), name="a")
    return ansor.SearchTask(compute_dag=[a, te.compute(a.shape, lambda i: a[i] + 1, name="b")], target="vta", sizes={})


def open_program() -> Any:
    with TemporaryDirectory() as folder:
        return relay.frontend.from_exported_program(changed(Path(folder), open_extent))


def open_network() -> Any:
    x = relay.var("x", shape=(te.size_var("n", 1, 4), 3))
    return relay.build(relay.Function([x], relay.nn.relu(x)), "cuda")


def relu() -> relay.Function:
    x = relay.var("x", shape=(2, 3))
    return relay.Function([x], relay.nn.relu(x))


def task(**options: Any) -> ansor.SearchTask:
    return ansor.SearchTask("matmul", (8, 8, 8), **{"target": "c", **options})


def other_devices() -> None:
    """Every one of the row is refused; the last refusal is shown."""
    for kind in ("rocm", "metal", "vulkan", "opencl", "hexagon"):
        with pytest.raises(ansor.TaskError, match="unknown, known targets are c, cuda, vta"):
            ansor.Target(kind)
    ansor.Target("webgpu")


REFUSED: dict[str, Callable[[], Any]] = {
    "sizes without bounds, and extents that are computed of them": lambda: te.placeholder((te.Var("n", "int32"), 4)),
    "tasks with open extents for other targets than `c` and `cuda`": open_task,
    "tensors without elements in workloads": lambda: te.placeholder((0, 4)),
    "complex numbers and text": lambda: te.placeholder((4,), dtype="complex64"),
    "other devices: ROCm, Metal, Vulkan, OpenCL, Hexagon, WebGPU": other_devices,
    "constant weights stored in the order of reading, on GPUs": lambda: task(target="cuda", layout_rewrite_option=2),
    "a strategy of one's own for the rounds of several tasks": lambda: ansor.TaskScheduler([task()], strategy="mine"),
    "templates of operators for CPUs and GPUs": lambda: autotvm.task.create("conv2d_nchw.x86", args=(), target="c"),
    "networks with open extents for other targets than `c`": open_network,
    "operators whose result has a shape that the data decide": lambda: onnx_model("NonZero", [2, 3]),
    "programs of `torch.export` whose open extents have no greatest value": open_program,
    "random operators": lambda: onnx_model("RandomNormalLike", [2, 3]),
    "one network on several kinds of devices": lambda: relay.build(relu(), target={"cpu": "c", "gpu": "cuda"}),
    "exported programs of other targets than `c` and `cuda`": lambda: export_program(None, (), "vta", "made", "x"),
}


def quoted(met: str) -> str:
    """The sentence of a row: the first piece of code with a space in it."""
    return next(piece for piece in re.findall(r"`([^`]+)`", met) if " " in piece)


@pytest.mark.parametrize("what", REFUSED)
def test_a_refusal_is_said_as_it_is_quoted(what: str) -> None:
    with pytest.raises(te.TeError) as error:
        REFUSED[what]()
    assert quoted(rows()[what]) in str(error.value) and "\n" not in str(error.value)


def test_sessions_are_local() -> None:
    assert isinstance(ansor.LocalRPCMeasureContext().runner, ansor.LocalRunner)


SEEN = {"sessions over TVM's own RPC protocol"}
"""Rows with a test of their own, above."""
UNTESTED = {"systems other than Linux"}


def test_every_row_is_tried() -> None:
    named = {what for what, met in rows().items() if re.search(r"\bno `", met)}
    assert named | set(REFUSED) | SEEN | UNTESTED == set(rows())
    assert set(REFUSED) | SEEN | UNTESTED <= set(rows())
    assert {what for what, met in rows().items() if not met} == UNTESTED
