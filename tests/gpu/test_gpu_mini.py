"""Kernels of `mini_ansor` on the device: what they compute is the definition."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

pytestmark = pytest.mark.gpu
cuda = pytest.importorskip("pycuda.driver", exc_type=ImportError)

from codegen_cuda.driver.compile import compile_source  # noqa: E402
from codegen_cuda.driver.device import architecture  # noqa: E402
from mini_ansor.__main__ import WORKLOADS  # noqa: E402
from mini_ansor.c import difference  # noqa: E402
from mini_ansor.cuda import kernels  # noqa: E402
from mini_ansor.expr import Op, evaluate  # noqa: E402
from mini_ansor.lower import lower  # noqa: E402
from mini_ansor.population import program, random_genes  # noqa: E402
from mini_ansor.program import GPU, State, ordered  # noqa: E402
from mini_ansor.sketch import generate_sketches  # noqa: E402

SHAPES = {"matmul": (256, 192, 320), "conv2d": (1, 14, 14, 64, 32, 3, 1, 1)}


def run(state: State, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All buffers after the kernels of a program, by key; results start as NaN."""
    importlib.import_module("pycuda.autoprimaryctx")
    memory: dict[str, Any] = {}
    host: dict[str, np.ndarray] = {}
    for kernel in kernels(lower(state)):
        for b in kernel.buffers:
            if b.key not in memory:
                host[b.key] = np.ascontiguousarray(inputs.get(b.name, np.full(b.shape, np.nan, np.float32)))
                memory[b.key] = cuda.to_device(host[b.key])
        module = cuda.module_from_buffer(compile_source(kernel.source, architecture()).cubin)
        function = module.get_function(kernel.name)
        arguments = [memory[b.key] for b in kernel.buffers]
        function(*arguments, grid=(kernel.blocks, 1), block=(kernel.threads, 1, 1))
    cuda.Context.synchronize()
    return {key: cuda.from_device_like(memory[key], host[key]) for key in memory}


@pytest.mark.parametrize("name", SHAPES)
def test_kernels_compute_the_definition(name: str) -> None:
    args: list[Op] = WORKLOADS[name].make(*SHAPES[name])
    rng = np.random.default_rng(0)
    inputs = {op.name: rng.uniform(-1, 1, op.shape).astype(np.float32) for op in args if op.body is None}
    want = evaluate(ordered(args), inputs)[args[-1].key]
    sketches, checked = generate_sketches(args, GPU), 0
    for n in range(400):
        state = program(random_genes(sketches[n % len(sketches)], rng), GPU)
        if state is not None and checked < 6:
            got = run(state, inputs)[args[-1].key]
            assert difference(got.reshape(want.shape), want) == "", str(state)
            checked += 1
    assert checked == 6
