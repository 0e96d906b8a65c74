"""Kernels that wait for those before them: their text, and which of a graph are launched ahead."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import pytest

from codegen_cuda.driver.compile import compile_source
from codegen_cuda.emission.emit import emit
from codegen_cuda.networks import cuda_graph
from codegen_cuda.overlap.dependent_launch import LONG_BYTES, LONG_STORES, begin_early, is_short, may_wait
from te_lite import compute, create_schedule, placeholder, thread_axis, topi
from te_lite.lowering.lower import lower
from tests.codegen_cuda.gpu_nests import HAVE_COMPILER, NO_COMPILER

KERNEL, COPY = 0, 1
INVALID_VALUE = 1


@pytest.mark.parametrize(
    ("architecture", "fits"), [("sm_80", False), ("sm_89", False), ("sm_90", True), ("sm_90a", True), ("sm_120", True)]
)
def test_architectures(architecture: str, fits: bool) -> None:
    assert may_wait(architecture) is fits


def test_nothing_is_read_before_the_wait() -> None:
    """All pointers come out of the wait; without it the text is as ever."""
    x, y = placeholder((4, 8), name="x"), placeholder((4, 8), name="y")
    z = topi.add(x, y)
    s = create_schedule(z.op)
    s[z].bind(s[z].op.axis[0], thread_axis("blockIdx.x"))
    s[z].bind(s[z].op.axis[1], thread_axis("threadIdx.x"))
    func = lower(s, [x, y, z], "f")
    plain, waiting = emit(func), emit(func, waits=True)
    assert "griddepcontrol" not in plain.source and plain.kernels == waiting.kernels
    body, kernel = waiting.source.split('extern "C" __global__ void ')
    assert body.count("[") > 3 and "[" not in kernel.replace("[4, 8]", "") and "__restrict__" not in kernel
    lines = kernel.splitlines()
    wait = next(k for k, line in enumerate(lines) if "griddepcontrol.wait" in line)
    held = [re.search(r'"\+l"\((\w+)\)', line) for line in lines[wait:]]
    names = [m[1] for m in held if m]
    assert f"f_kernel0_body({', '.join(names)});" in kernel and len(names) == 3
    stripped = re.sub(r"static __device__ __forceinline__ void (\w+)_body", r"\1", body)
    assert (
        stripped.split("f_kernel0(")[1]
        .split("{")[1]
        .strip()
        .startswith(plain.source.split("f_kernel0(")[1].split("{")[1].split("}")[0].strip())
    )


class FakeDriver:
    """A graph: `edges` between `nodes`, numbers to kinds."""

    def __init__(self, nodes: dict[int, int], edges: list[tuple[int, int]]) -> None:
        self.nodes, self.edges = nodes, {edge: (0, 0) for edge in edges}

    def cuGraphGetEdges_v2(self, graph: Any, sources: Any, ends: Any, edges: Any, count: Any) -> int:
        size = ctypes.cast(count, ctypes.POINTER(ctypes.c_size_t))
        if sources is None:
            size[0] = len(self.edges)
        elif not size[0]:
            return INVALID_VALUE  # as the real one does
        for k, (source, end) in enumerate(self.edges if sources is not None else ()):
            sources[k], ends[k] = source, end
        return 0

    def cuGraphNodeGetType(self, node: Any, kind: Any) -> int:
        ctypes.cast(kind, ctypes.POINTER(ctypes.c_int))[0] = self.nodes[node.value]
        return 0

    def cuGraphRemoveDependencies_v2(self, graph: Any, sources: Any, ends: Any, edges: Any, count: Any) -> int:
        assert len(sources) == len(ends) == len(edges) == count.value > 0
        for pair in zip(sources, ends, strict=True):
            del self.edges[pair]
        return 0

    def cuGraphAddDependencies_v2(self, graph: Any, sources: Any, ends: Any, edges: Any, count: Any) -> int:
        assert len(sources) == len(ends) == len(edges) == count.value > 0
        for pair, edge in zip(zip(sources, ends, strict=True), edges, strict=True):
            raw = bytes((ctypes.c_ubyte * 8).from_address(ctypes.addressof(edge)))
            assert raw[1] == 0 and not any(raw[3:])
            self.edges[pair] = raw[0], raw[2]
        return 0


def test_only_kernels_that_wait_behind_one_other_kernel_begin_early() -> None:
    """3 does not wait, 4 and 6 follow two and a copy."""
    nodes = {1: KERNEL, 2: KERNEL, 3: KERNEL, 4: KERNEL, 5: COPY, 6: KERNEL}
    driver = FakeDriver(nodes, [(1, 2), (1, 3), (2, 4), (3, 4), (4, 5), (5, 6)])
    begin_early(driver, None, cuda_graph._check, {2, 4, 6})
    assert {edge for edge, kind in driver.edges.items() if kind == (1, 1)} == {(1, 2)}
    assert {edge for edge, kind in driver.edges.items() if kind == (0, 0)} == {(1, 3), (2, 4), (3, 4), (4, 5), (5, 6)}


@pytest.mark.parametrize("kernels", [0, 1, 3])
def test_kernels_that_need_no_order_stay_as_they_are(kernels: int) -> None:
    """A graph of one kernel, of several that are independent, and of none have no edges, and none may be asked for."""
    driver = FakeDriver(dict.fromkeys(range(1, kernels + 1), KERNEL), [])
    begin_early(driver, None, cuda_graph._check, driver.nodes.keys())
    assert not driver.edges


def product(m: int, n: int, k: int) -> Any:
    a, b = placeholder((m, k), name="a"), placeholder((k, n), name="b")
    c = topi.nn.matmul(a, b)
    return lower(create_schedule(c.op), [a, b, c], "f")


def test_long_programs_do_not_wait() -> None:
    """Those of many stores, and those of many bytes."""
    assert is_short(product(1024, 1024, (LONG_STORES >> 20) - 2))
    assert not is_short(product(1024, 1024, LONG_STORES >> 20))
    x = placeholder((LONG_BYTES // 8 // 32, 32), name="x")
    y = topi.nn.relu(x)
    assert not is_short(lower(create_schedule(y.op), [x, y], "f"))


def test_a_driver_without_such_edges_leaves_a_graph_alone() -> None:
    begin_early(object(), None, cuda_graph._check, {1})


@pytest.mark.skipif(not HAVE_COMPILER, reason=NO_COMPILER)
def test_a_kernel_that_waits_fetches_as_much_at_once() -> None:
    """Loads of a tile need not wait for the stores of others to shared memory: they hold as many registers."""
    x = placeholder((128, 32), name="x")
    y = compute((128, 32), lambda i, j: x[127 - i, j] * 2.0, "y")
    s = create_schedule(y.op)
    tile = s.cache_read(x, "shared", [y.op])
    outer, _ = s[y].split(s[y].op.axis[0], factor=64)
    s[y].bind(outer, thread_axis("blockIdx.x"))
    s[y].bind(s[y].op.axis[1], thread_axis("threadIdx.x"))
    s[tile].compute_at(s[y], outer)
    s[tile].bind(s[tile].op.axis[1], thread_axis("threadIdx.x"))
    s[tile].unroll(s[tile].op.axis[0])
    func = lower(s, [x, y], "f")
    (plain,), (waiting,) = [
        compile_source(emit(func, waits=waits).source, "sm_90", use_cache=False).resources for waits in (False, True)
    ]
    assert waiting.registers > plain.registers - 8 > 16
