"""Tasks whose arrays are drawn and judged on a GPU: what the emulated tests say, and the price of a large one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.measure.channel import task_payload
from ansor.measure.drawn_task import DrawnTask
from ansor.measure.jobs import Workbench
from ansor.sketch.plain import plain_state
from te_lite import topi
from te_lite.meaning.drawn import DRAWN, DrawnArray, key_of
from tests.workloads import matmul

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)

from codegen_cuda.backend import BACKEND  # noqa: E402
from codegen_cuda.driver.module import open_device  # noqa: E402


@pytest.mark.parametrize("dtype", sorted(DRAWN))
def test_the_device_draws_what_the_host_draws(dtype: str) -> None:
    device, drawn = open_device(), DrawnArray((1031, 1777), dtype, key_of(7, 2))
    handle = device.empty(drawn.shape, dtype)
    device.draw(handle, drawn.key)
    got = device.get(handle)
    assert got.tobytes() == drawn.whole().tobytes() and device.drawn(handle, drawn.key)
    got.reshape(-1).view(np.uint8)[-1] ^= 1
    device.write(handle, got)
    assert not device.drawn(handle, drawn.key)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "int32", "bool"])
def test_elements_that_differ_are_counted_and_named(dtype: str) -> None:
    device = open_device()
    want = DrawnArray((517, 1021), dtype, key_of(1, 1)).whole()
    got, places = want.copy(), np.sort(np.random.default_rng(0).choice(want.size, 20, replace=False))
    got.reshape(-1)[places] = ~want.reshape(-1)[places] if dtype == "bool" else want.reshape(-1)[places] + 2
    slope, floor = (0.1, 0.1) if "float" in dtype else (0.0, 0.0)
    count, found = device.astray(device.put(got), device.put(want), slope, floor, 64)
    assert count == 20 and (found == places).all()
    assert device.astray(device.put(want), device.put(want), 0.0, 0.0, 64)[0] == 0
    assert (device.pick(device.put(got), device.put(places)) == got.reshape(-1)[places]).all()


def test_more_elements_than_32_bits_count() -> None:
    device, drawn = open_device(), DrawnArray((5, 1 << 30), "int8", key_of(2, 2))
    if device.free_bytes() < 12 << 30:
        pytest.skip("needs 12 GiB")
    one, other = [device.empty(drawn.shape, "int8") for _ in range(2)]
    for handle in (one, other):
        device.draw(handle, drawn.key)
    places = np.array([0, 2**31 + 5, 2**32 + 7, 5 * 2**30 - 1])
    picked = device.pick(one, device.put(places))
    assert (picked == drawn.at(np.unravel_index(places, drawn.shape))).all()
    assert device.astray(one, other, 0.0, 0.0, 8)[0] == 0
    device.cuda.memset_d8(one.pointer + 2**32 + 7, 77, 1)
    count, found = device.astray(one, other, 0.0, 0.0, 8)
    assert count == 1 and found.tolist() == [2**32 + 7] and not device.drawn(one, drawn.key)


def elu(shape: tuple[int, ...]) -> list[te.Tensor]:
    x = te.placeholder(shape, name="x")
    return [x, te.compute(shape, lambda *i: te.if_then_else(x[i] > 0.0, x[i], te.exp(x[i]) - 1.0), name="y")]


def depthwise(n: int, c: int, h: int) -> list[te.Tensor]:
    data, kernel = te.placeholder((n, c, h, h), name="data"), te.placeholder((c, 1, 3, 3), name="kernel")
    return [data, kernel, topi.nn.depthwise_conv2d_nchw(data, kernel, 1, 1, 1)]


def softmax(m: int, n: int) -> list[te.Tensor]:
    x = te.placeholder((m, n), name="x")
    return [x, topi.nn.softmax(x, axis=1)]


def squares(m: int, n: int) -> list[te.Tensor]:
    a, b = te.placeholder((m, n), name="a"), te.placeholder((m, n), name="b")
    i, j = te.reduce_axis((0, m), "i"), te.reduce_axis((0, n), "j")
    return [a, b, te.compute((1,), lambda k: te.sum((a[i, j] - b[i, j]) * (a[i, j] - b[i, j]), axis=[i, j]), name="s")]


LARGE: dict[str, Callable[[], list[te.Tensor]]] = {
    "elu": lambda: elu((4096, 98304)),
    "depthwise": lambda: depthwise(16, 64, 512),
    "matmul": lambda: matmul(4096, 4096, 4096),
    "softmax": lambda: softmax(4096, 98304),
    "squares": lambda: squares(4096, 8192),
}


class Bench:
    """A worker in this process; programs are the plain one, spoilt behind its back."""

    def __init__(self, place: Path, tensors: list[te.Tensor]) -> None:
        self.task, self.place, self.workbench = ansor.SearchTask(compute_dag=tensors, target="cuda"), place, Workbench()
        self.payload = task_payload(self.task)
        job = {**self.payload, "op": "prepare", "directory": str(place), "seed": 1, "device": 0}
        start = time.perf_counter()
        self.workbench.do(job)
        self.seconds = time.perf_counter() - start
        found = self.workbench._prepared[self.payload["task"]]
        assert isinstance(found, DrawnTask)
        self.drawn, self.program = found, place / "program"
        self.program.mkdir()
        BACKEND.build(te.lower(plain_state(self.task), self.task.compute_dag.tensors), "cuda", str(self.program))

    def run(self) -> Any:
        return self.workbench.do({
            "op": "run", "task": self.payload["task"], "directory": str(self.program), "packed": [], "number": 1,
            "repeat": 1, "min_repeat_ms": 0, "flush": False,
        })  # fmt: skip


@pytest.mark.parametrize("name", sorted(LARGE))
def test_a_large_task_is_prepared_and_judged(name: str, tmp_path: Path) -> None:
    one = Bench(tmp_path, LARGE[name]())
    start = time.perf_counter()
    costs = one.run()["costs"]
    print(
        f"{name}: prepared in {one.seconds:.2f} s, a trial in {time.perf_counter() - start:.2f} s of {costs[0]:.4f} s"
    )
    task, (k,) = one.drawn, one.drawn.checks
    device, out, lent = task.device, task.handles[k], task.lend([])
    good = device.get(out).reshape(-1)
    middle, third = good.size // 2 + good.size % 2 - 1, good.size // 3
    cases: dict[str, tuple[Any, Any]] = {
        "corner": (good.size - 1, good[-1] * 1.01 + 0.5), "middle": (middle, good[middle] * 1.01 + 0.5),
        "nan": (third, np.nan), "tail": (slice(middle, middle + 3), np.nan), "race": (third, good[0] * 1.5 + 0.25),
    }  # fmt: skip
    for word, (place, value) in cases.items():
        spoilt = good.copy()
        spoilt[place] = value
        device.write(out, spoilt.reshape(out.shape))
        assert task.wrong_outputs(), word
    device.write(out, good.reshape(out.shape))
    assert task.wrong_outputs() == []
    first = device.get(lent[0].handle)
    first.reshape(-1)[first.size // 2] += 1
    device.write(lent[0].handle, first)
    assert task.take_back(lent) == [lent[0].name] and task.take_back(lent) == []
    assert one.run()["costs"]
