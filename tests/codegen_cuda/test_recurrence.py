"""Whole loops as one kernel: blocks of clusters as threads that send each other numbers, and which loops are ones."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ansor.core.device.network_plan import KernelCode
from codegen_cuda.driver import architecture
from codegen_cuda.driver.compile import available_compilers, compile_source
from codegen_cuda.emulation import emulator
from codegen_cuda.networks.cluster_text import CLUSTER_HELPERS
from codegen_cuda.networks.recurrence import recurrence_code, shares_of
from codegen_cuda.program.errors import DeviceError
from relay_lite import reference
from relay_lite.compiler.optimize import optimize, whole_loops
from relay_lite.ir.control import Loop
from relay_lite.ir.loops import Exprs, loop, loop_of_one
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Expr, Function, Tuple, Var, const, tensor_type
from relay_lite.ir.types import TensorType
from relay_lite.ir.visit import post_order
from relay_lite.op.lower_group import recurrence_of
from tests.nonempty import nonempty
from tests.relay_lite.test_build_cuda import TARGET, Array

SM_90 = "sm_90"
HERE = Path(__file__).parent
Step = Callable[[Exprs, Exprs], tuple[Exprs, Exprs]]


def tensor(name: str, *shape: int) -> Var:
    return Var(name, TensorType(shape, "float32"))


def gated(gates: int, batch: int, width: int, by_output: bool = True) -> Step:
    """A step of two states, of which the first one is multiplied: `gates` sums, each of which is used at its point."""
    rng = np.random.default_rng(3)
    shape = (gates * width, width) if by_output else (width, gates * width)
    weight = const(rng.standard_normal(shape) / width**0.5, "float32")
    bias = const(rng.standard_normal((1, gates * width)), "float32")

    def step(slices: Exprs, states: Exprs) -> tuple[Exprs, Exprs]:
        h, c = states
        sums = call("add", call("nn.dense" if by_output else "nn.matmul", h, weight), bias)
        for k in range(gates):
            begin, end = (0, k * width), (batch, (k + 1) * width)
            part = [call("strided_slice", x, begin=begin, end=end) for x in (slices[0], sums)]
            c = call("tanh", call("add", part[0], call("multiply", part[1], c)))
        new = [call("subtract", c, call("multiply", h, const(0.5, "float32"))), c]
        return new, new

    return step


def recurrent(
    gates: int, batch: int, width: int, steps: int, backwards: bool = False, of_one: bool = True, by_output: bool = True
) -> Function:
    """A function that is a loop of `gated` steps, and its results as they are."""
    x, before = tensor("x", steps * batch, gates * width), [tensor("h", batch, width), tensor("c", batch, width)]
    made = (loop_of_one if of_one else loop)(gated(gates, batch, width, by_output), [x], before, steps, backwards)
    return Function((x, *before), Tuple((*made[0], *made[1])))


def whole(function: Function) -> Function:
    """The one whole loop of a graph that is compiled."""
    (found,) = whole_loops(optimize(function, {}, TARGET))
    return found


def code_of(function: Function) -> KernelCode:
    made = recurrence_of(function)
    code = None if made is None else recurrence_code(made, SM_90)
    assert code is not None
    return code


def run_as_threads(code: KernelCode, arrays: list[Array], folder: Path) -> None:
    """Run a kernel of clusters on arrays of float32, which it changes; nothing is fetched ahead."""
    (launch,) = code.facts["kernels"]
    text = code.source.replace(CLUSTER_HELPERS, "")
    text, count = re.subn(r"__shared__ .*float operand\[(\d+)\];", r"float *operand = (float *)mine->memory;", text)
    text, more = re.subn(r"__shared__ unsigned long long ready\[2\];", "Ready *ready = mine->ready;", text)
    assert count == more == 1
    text = re.sub(r"#ifdef __CUDA_ARCH__.*?#endif", "", text, flags=re.DOTALL)
    elements = re.findall(r"float operand\[(\d+)\]", code.source)[0]
    sizes = [f"-DMEMORY={4 * int(elements)}", f"-DTHREADS={launch['block'][0]}"]
    blocks = re.findall(r"__cluster_dims__\((\d+), 1, 1\)", code.source)[0]
    files = [folder / str(k) for k in range(len(arrays))]
    read = "\n".join([f'std::vector<float> a{k} = read_floats("{file}");' for k, file in enumerate(files)])
    given = ", ".join([*[f"a{k}.data()" for k in range(len(arrays))], "nullptr", "0", "0"])
    wrote = "\n".join([
        f'std::ofstream("{file}", std::ios::binary).write((char *)a{k}.data(), a{k}.size() * 4);'
        for k, file in enumerate(files)
    ])  # fmt: skip
    main = f"int main() {{ {read} run_clusters({launch['grid'][0]}, [&] {{ {launch['name']}({given}); }}); {wrote} }}"
    (folder / "all.cpp").write_text("\n".join(['#include "cluster_threads.h"', text, main]))
    build = ["g++", "-std=c++20", "-O1", "-pthread", "-w", *sizes, f"-DBLOCKS={blocks}", f"-I{HERE}"]
    subprocess.run([*build, str(folder / "all.cpp"), "-o", str(folder / "all")], check=True, timeout=60)
    for file, array in zip(files, arrays, strict=True):
        file.write_bytes(array.tobytes())
    subprocess.run([str(folder / "all")], check=True, timeout=60)
    for file, array in zip(files, arrays, strict=True):
        array[...] = np.fromfile(file, "float32").reshape(array.shape)


CLUSTERED: dict[int, tuple[tuple[int, int, int, int], dict[str, bool]]] = {
    2: ((3, 3, 35, 5), {}),
    4: ((1, 9, 67, 4), {"backwards": True, "by_output": False}),
    8: ((2, 1, 142, 5), {"of_one": False}),
}


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
@pytest.mark.parametrize("blocks", CLUSTERED)
@pytest.mark.one_in(3)
def test_blocks_that_send_each_other_numbers(blocks: int, tmp_path: Path) -> None:
    """Of widths that do not fill the last block, so that some of its warps have nothing to send."""
    sizes, more = CLUSTERED[blocks]
    function = whole(recurrent(*sizes, **more))
    code = code_of(function)
    assert f"__cluster_dims__({blocks}, 1, 1)" in code.source
    rng = np.random.default_rng(1)
    given = [(rng.uniform(-2, 2, p.shape) / blocks**0.5 / 4).astype("float32") for p in function.params]
    want = reference.run(function, given)
    made = [np.full(w.shape, np.nan, "float32") for w in want]
    run_as_threads(code, [*given, *made], tmp_path)
    for a, b in zip(made, want, strict=True):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulator needs g++")
@pytest.mark.parametrize(("sizes", "more"), [((3, 9, 5, 4), {"backwards": True}), ((1, 17, 12, 3), {"of_one": False})])
def test_one_block_on_the_emulator(sizes: tuple[int, int, int, int], more: dict[str, bool]) -> None:
    """Which looks for races, and reads of what nothing wrote."""
    function = whole(recurrent(*sizes, **more))
    code, rng = code_of(function), np.random.default_rng(2)
    given = [rng.uniform(-0.5, 0.5, p.shape).astype("float32") for p in function.params]
    want = reference.run(function, given)
    made = [np.full(w.shape, np.nan, "float32") for w in want]
    (launch,) = code.facts["kernels"]
    ahead = [np.zeros(16, np.int8), np.uint32(0), np.uint32(0)]
    emulator.run(code.source, launch["name"], tuple(launch["grid"]), tuple(launch["block"]), [*given, *made, *ahead])
    for a, b in nonempty(zip(made, want, strict=True)):
        np.testing.assert_allclose(a, b, atol=2e-5)


@pytest.mark.skipif(not available_compilers(), reason="no CUDA compiler")
@pytest.mark.parametrize("sizes", [(4, 10, 256), (3, 17, 320), (1, 32, 512)])
def test_weights_stay_in_registers(sizes: tuple[int, int, int]) -> None:
    resources = compile_source(code_of(whole(recurrent(*sizes, 4))).source, SM_90).resources
    assert [r.spills for r in resources] == [0]


@pytest.mark.parametrize(
    ("sizes", "fits"), [((4, 64, 256), True), ((4, 65, 256), False), ((4, 10, 512), False), ((1, 1, 1), True)]
)
def test_what_fits_one_kernel(sizes: tuple[int, int, int], fits: bool) -> None:
    found = whole_loops(optimize(recurrent(*sizes, 3), {}, TARGET))
    assert len(found) == fits


@pytest.mark.parametrize(("gates", "batch", "width"), [(4, 10, 256), (1, 9, 67), (2, 33, 129), (3, 64, 36), (1, 2, 17)])
def test_everyone_has_work(gates: int, batch: int, width: int) -> None:
    """Blocks are whole warps, all rows and columns are somebody's, and no block has none."""
    made = recurrence_of(whole(recurrent(gates, batch, width, 2)))
    assert made is not None
    shares = shares_of(made, SM_90)
    assert shares is not None and shares.threads % 32 == 0
    assert shares.rows * shares.clusters >= batch > shares.rows * (shares.clusters - 1)
    assert shares.blocks * shares.columns >= width > shares.columns * (shares.blocks - 1)
    before = shares_of(made, "sm_80")
    assert before is None or before.blocks == 1


def test_a_target_without_architecture_or_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its graphs are still optimized, and have the tasks of steps."""

    def none() -> str:
        raise DeviceError("no device")

    monkeypatch.setattr(architecture, "architecture", none)
    assert not whole_loops(optimize(recurrent(1, 2, 5, 3), {}, "cuda"))


def one(step: Step, width: int = 4) -> bool:
    """Whether a loop of such a step, of two rows, is a recurrence."""
    _, (every,) = loop(step, [tensor("x", 6, width)], [tensor("s", 2, width)], 3)
    (node,) = [n for n in post_order(Function((), every).body) if isinstance(n, Loop)]
    outside = tuple([Var(f"p{k}", tensor_type(a)) for k, a in enumerate(node.args)])
    return recurrence_of(Function(outside, replace(node, args=outside))) is not None


def product(x: Expr, width: int = 4) -> Expr:
    return call("nn.dense", x, tensor("w", width, width))


REFUSED: dict[str, Callable[[Expr, Expr], Expr]] = {
    "no product": lambda x, s: call("add", x, s),
    "two products": lambda x, s: call("add", product(product(s)), x),
    "of the input": lambda x, s: call("add", product(x), s),
    "of both": lambda x, s: product(call("add", x, s)),
    "another row": lambda x, s: call("add", product(s), call("reverse", s, axis=0)),
    "another column": lambda x, s: call("add", product(s), call("reverse", s, axis=1)),
    "another column of the product": lambda x, s: call("reverse", product(s), axis=1),
    "a sum of a row": lambda x, s: call("add", product(s), call("sum", s, axis=(1,), keepdims=True)),
    "weights that change": lambda x, s: call("nn.dense", s, call("concatenate", Tuple((s, s)), axis=0)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_loops_of_other_kinds(name: str) -> None:
    def step(slices: Exprs, states: Exprs) -> tuple[Exprs, Exprs]:
        new = REFUSED[name](slices[0], states[0])
        return [new], [new]

    assert not one(step)


def test_slices_may_be_read_anywhere() -> None:
    def step(slices: Exprs, states: Exprs) -> tuple[Exprs, Exprs]:
        new = call("add", product(states[0]), call("reverse", slices[0], axis=1))
        return [new], [new]

    assert one(step)
