"""PyTorch's operators, to be timed in turns with our programs on the same cores or the same GPU (extra `[bench]`).

Strict float32: TF32 is off unless it is asked for.  The libraries behind PyTorch choose among kernels by memory format,
so images are tried in both formats, eager and compiled, and the best of all counts.

On the CPU both sides are called from Python (`ansor.cli.compare.timed_in_turns`), which costs us some 8 us, and use as
many threads as this process has processors.  On a GPU both are recorded into CUDA graphs of as many calls as fill two
milliseconds; a figure is the time of one replay between two events, queued behind a replay that does not count, so
that the device never waits for the host.  All calls use the same arrays: what fits stays in the caches, on both sides.
"""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ansor.cli.torch_side import exact_torch as exact_torch
from benchmarks.report import is_there

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[], Any]
Recorder = Callable[[int], Run]
"""From a number of calls to what queues as many, back to back."""
TOLERANCE = 1e-3
GRAPH_SECONDS = 2e-3
MOST_CALLS = 1000
WARM_ROUNDS = 3


def available() -> bool:
    """Whether PyTorch is installed; said, once, if not."""
    return is_there("torch", "nothing is compared with PyTorch")


# ------------------------------------------------------------------------------------------------- what is timed


def formats(torch: Any) -> dict[str, Any]:
    """The memory formats of images, by name."""
    return {"NCHW": torch.contiguous_format, "channels_last": torch.channels_last}


def in_formats(torch: Any, tensors: Sequence[Any]) -> dict[str, list[Any]]:
    """The tensors of an operator in each memory format that may matter: one where there is no image."""
    last = {4: torch.channels_last, 5: torch.channels_last_3d}
    if all(t.ndim not in last for t in tensors):
        return {"": [t.contiguous() for t in tensors]}

    def stored(memory_format: Any) -> list[Any]:
        by_rank = last if memory_format is torch.channels_last else {}
        return [t.contiguous(memory_format=by_rank.get(t.ndim, torch.contiguous_format)) for t in tensors]

    return {name: stored(memory_format) for name, memory_format in formats(torch).items()}


def conv2d_bias_relu(arrays: Sequence[Array], padding: int) -> dict[str, Run]:
    """relu(conv2d + bias) of data [N, CI, H, W], kernel and bias [1, CO, 1, 1] in both memory formats."""
    torch = exact_torch()
    data, kernel, bias = [torch.from_numpy(a) for a in arrays]
    conv = torch.nn.functional.conv2d

    def runner(x: Any, w: Any, b: Any) -> Run:
        return lambda: torch.relu_(conv(x, w, b, padding=padding))

    return {name: runner(*stored) for name, stored in in_formats(torch, [data, kernel, bias.reshape(-1)]).items()}


def matmul(arrays: Sequence[Array]) -> dict[str, Run]:
    """The product of two matrices, into an array that is there."""
    torch = exact_torch()
    a, b = [torch.from_numpy(x) for x in arrays]
    out = torch.empty(a.shape[0], b.shape[1])
    return {"matmul": lambda: torch.matmul(a, b, out=out)}


def elementwise(name: str, array: Array, exponent: float) -> Run:
    """A function of every element, into an array that is there; `exponent` is for `pow`."""
    torch = exact_torch()
    x = torch.from_numpy(array)
    out = torch.empty_like(x)
    if name == "pow":
        return lambda: torch.pow(x, exponent, out=out)
    function = getattr(torch, name)
    return lambda: function(x, out=out)


def softmax(array: Array) -> Run:
    """The softmax of every row, into an array that is there."""
    torch = exact_torch()
    x = torch.from_numpy(array)
    out = torch.empty_like(x)
    return lambda: torch.softmax(x, 1, out=out)


def check(ours: Array, theirs: Run) -> None:
    """Raise AssertionError when PyTorch's result is another one."""
    want = theirs().contiguous().numpy()
    assert np.abs(ours - want).max() <= TOLERANCE * np.abs(want).max(), "our result differs from PyTorch's"


# ------------------------------------------------------------------------------------------------- on a GPU


def captured(torch: Any, run: Run, calls: int = 1) -> tuple[Run, Any]:
    """The replay of a CUDA graph of `calls` runs, and the tensor that its last run writes; without a GPU, `run`.

    No run's result is kept while the next one runs, so that all write to the same memory.
    """
    if not torch.cuda.is_available():
        return run, run()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.current_stream().wait_stream(stream)
    gc.collect()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(calls - 1):
            run()
        out = run()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay, out


def graph_seconds(torch: Any, replay: Run) -> float:
    """Seconds of a replay, queued behind another."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    replay()
    begin.record()
    replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e-3


def graphs_in_turns(torch: Any, recorders: Mapping[str, Recorder], rounds: int) -> dict[str, list[float]]:
    """Seconds a call of each, `rounds` figures, taken in turns; see the head of this file."""
    replays: dict[str, tuple[int, Run]] = {}
    for name, record in recorders.items():
        rough = min(graph_seconds(torch, once) for once in [record(1)] * 3)
        calls = min(max(1, math.ceil(GRAPH_SECONDS / rough)), MOST_CALLS)
        replays[name] = calls, record(calls)
    times: dict[str, list[float]] = {name: [] for name in recorders}
    for _ in range(WARM_ROUNDS + rounds):
        for name, (calls, replay) in replays.items():
            times[name].append(graph_seconds(torch, replay) / calls)
    return {name: figures[WARM_ROUNDS:] for name, figures in times.items()}
