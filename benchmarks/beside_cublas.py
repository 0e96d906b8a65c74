"""Programs for a matrix product beside that of cuBLAS: in CUDA graphs, timed in turns, as shares of its speed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks import pytorch
from benchmarks.operator_sides import our_graph, recorded

ROUNDS = 15


def beside_cublas(
    torch: Any, product: Callable[[], Any], programs: Mapping[str, tuple[Any, Sequence[Any]]], operations: int
) -> list[list[Any]]:
    """A row for cuBLAS, which `product` calls through PyTorch, and one for each program: a module and its tensors.

    A row is the name, microseconds, TFLOP/s of so many operations, and the share of cuBLAS's speed.
    """
    ours = {name: partial(our_graph, module, tensors) for name, (module, tensors) in programs.items()}
    return recorded_beside_cublas(torch, product, ours, operations)


def recorded_beside_cublas(
    torch: Any, product: Callable[[], Any], ours: Mapping[str, pytorch.Recorder], operations: int
) -> list[list[Any]]:
    """The same rows, of what records its calls itself."""
    recorders: dict[str, pytorch.Recorder] = {"cuBLAS": partial(recorded, torch, product), **ours}
    seconds = {name: min(found) for name, found in pytorch.graphs_in_turns(torch, recorders, ROUNDS).items()}
    best = seconds["cuBLAS"]
    return [[name, t * 1e6, operations / t * 1e-12, best / t] for name, t in seconds.items()]
