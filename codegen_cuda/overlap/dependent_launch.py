"""Programmatic dependent launch (from sm_90 on): kernels that start before the one before them has ended.

Where all blocks of a kernel have ended or let it, the next one of the graph is launched; it waits for the end of the
kernel (and for what that waited for) before it touches memory.  The pointers of a kernel pass
through an empty `asm volatile` behind the wait, so the compiler cannot hoist loads above it.  After that it no longer
knows their address space, so `__isGlobal` is asserted again; otherwise every load would be ordered after earlier stores
to shared memory.  That they point to
different memory cannot be said again, so what is added to results is read before they are written (`reads_first.py`).
Before the wait the kernel fetches the weights of later ones (`prefetch.py`), which none writes, and does what it has
in front of a line `THERE`, if it has one: making barriers, say.

No kernel lets the next one begin before its own blocks end.  Blocks that begin while others run are put where room is:
those of a product that was searched for one block on each multiprocessor pile up on the few that the kernel before has
left (`benchmarks/launch_ways.py`, docs/results/networks.md).

A long kernel does not wait: pointers that come out of an instruction cost it registers, and banks of them
(docs/results/gpu.md).
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Any

from te_lite.expr.dtype import BYTES
from te_lite.loops.stmt import For, LoweredFunc, Stmt, Store, bodies

from . import prefetch

LEAST_ARCHITECTURE = 90
_NEEDED = "cuGraphGetEdges_v2", "cuGraphRemoveDependencies_v2", "cuGraphAddDependencies_v2", "cuGraphNodeGetType"
_KERNEL_NODE = 0
THERE = "memory_there();"
"""The line of a kernel behind which it reads memory, if it does anything before."""
LONG_STORES, LONG_BYTES = 1 << 31, 1 << 29
"""Stores that are run, and bytes of tensors, from which a program takes so long that an early launch saves nothing."""
Check = Callable[[int, str], None]


def may_wait(architecture: str) -> bool:
    """Whether kernels for an architecture like `sm_90` have the instructions."""
    return int("".join([c for c in architecture if c.isdigit()]) or 0) >= LEAST_ARCHITECTURE


def is_short(func: LoweredFunc) -> bool:
    """Whether the kernels of a program are so short that their launch is worth saving."""
    return _stores(func.body) < LONG_STORES and sum([b.size * BYTES[b.dtype] for b in func.args]) < LONG_BYTES


def _stores(s: Stmt) -> int:
    """How often a store is run, by all threads together."""
    inner = 1 if isinstance(s, Store) else sum([_stores(b) for b in bodies(s)])
    return inner * (s.extent if isinstance(s, For) else 1)


def waiting(
    head: str, name: str, params: Sequence[str], pointers: Sequence[str], lines: Sequence[str], maps: Sequence[str] = ()
) -> str:
    """A kernel that waits before it computes `lines`; `head` is all of its declaration before its name.

    `maps` and `pointers` are the names of its parameters: the former stay where they were passed.
    """
    inner = [p.replace("__grid_constant__ TensorMap ", "TensorMap &") for p in params]
    unrestricted = [p.replace("__restrict__ ", "") for p in params]
    held = [f'  asm volatile("" : "+l"({p})); __builtin_assume(__isGlobal({p}));' for p in pointers]
    wait = ["#ifdef __CUDA_ARCH__", '  asm volatile("griddepcontrol.wait;" ::: "memory");', *held, "#endif"]
    there = lines.index(f"  {THERE}") if f"  {THERE}" in lines else None
    lines = lines if there is None else [*lines[:there], *wait, *lines[there + 1 :]]
    return "\n".join([
        f"static __device__ __forceinline__ void {name}_body({', '.join(inner)}) {{", *lines, "}", "",
        f"{head}{name}({', '.join([*unrestricted, *prefetch.PARAMS])}) {{",
        prefetch.FETCH, *(wait if there is None else ()),
        f"  {name}_body({', '.join([*maps, *pointers])});",
        "}",
    ])  # fmt: skip


class _Edge(ctypes.Structure):
    """`CUgraphEdgeData`."""

    _fields_ = [("from_port", ctypes.c_ubyte), ("to_port", ctypes.c_ubyte), ("type", ctypes.c_ubyte),
                ("reserved", ctypes.c_ubyte * 5)]  # fmt: skip


_PROGRAMMATIC = 1
"""The port of `launch_dependents`, and the type of an edge from there."""


def begin_early(driver: Any, graph: Any, check: Check, waiting: Collection[int | None]) -> None:
    """Let kernels of a graph that follow one other kernel alone be launched when the blocks of that one end.

    They are those among the nodes `waiting`, whose kernels wait for themselves.  A driver before CUDA 12.3 has no such
    edges, and the graph stays as it is.
    """
    if not all(hasattr(driver, name) for name in _NEEDED):
        return
    what, count = "reading the order of kernels", ctypes.c_size_t()
    check(driver.cuGraphGetEdges_v2(graph, None, None, None, ctypes.byref(count)), what)
    if not count.value:  # the driver refuses to write no edges
        return
    sources, ends = (ctypes.c_void_p * count.value)(), (ctypes.c_void_p * count.value)()
    edges = (_Edge * count.value)()
    check(driver.cuGraphGetEdges_v2(graph, sources, ends, edges, ctypes.byref(count)), what)
    into = Counter(ends)
    kinds = {node: _kind(driver, node, check) for node in {*sources, *ends}}
    alone = [
        k for k, (source, end) in enumerate(zip(sources, ends, strict=True))
        if end in waiting and into[end] == 1 and kinds[source] == kinds[end] == _KERNEL_NODE
    ]  # fmt: skip
    if not alone:
        return
    nodes, size = ctypes.c_void_p * len(alone), ctypes.c_size_t(len(alone))
    pairs = nodes(*[sources[k] for k in alone]), nodes(*[ends[k] for k in alone])
    before = (_Edge * len(alone))(*[edges[k] for k in alone])
    early = (_Edge * len(alone))(*[_Edge(_PROGRAMMATIC, 0, _PROGRAMMATIC) for _ in alone])
    check(driver.cuGraphRemoveDependencies_v2(graph, *pairs, before, size), "an order of kernels")
    check(driver.cuGraphAddDependencies_v2(graph, *pairs, early, size), "an early launch")


def _kind(driver: Any, node: int, check: Check) -> int:
    kind = ctypes.c_int()
    check(driver.cuGraphNodeGetType(ctypes.c_void_p(node), ctypes.byref(kind)), "reading the kind of a step")
    return kind.value
