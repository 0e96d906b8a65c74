"""Operators that PyTorch runs faster: its kernel stays where a call of the whole module takes less with it.

An operator by itself says little: in PyTorch it is a launch of its own, and what we would have fused with it is
another.  So the module is compiled once more for each distinct operator, the longest first, and timed in turns with the
one that is the fastest so far.
"""

from __future__ import annotations

import logging
import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from ansor.core.values.checks import columns_of, counted
from ansor.measure.progress import seconds_text
from te_lite.errors import TeError

from .memory_order import is_dense

OPERATORS = {"convolution", "mm", "addmm", "bmm", "baddbmm", "scaled_dot_product_attention"}
"""Those of ATen that libraries have kernels of their own for."""
MOST_TRIED = 8
GAIN = 0.02
"""A module that is faster by less is not worth another launch."""
ROUNDS, SLICE, MOST_CALLS = 5, 0.02, 1000
logger = logging.getLogger("ansor.torch")
Run = Callable[..., Any]


@dataclass(frozen=True)
class Tried:
    """An operator: the seconds of a call of the module without and with PyTorch's kernel, and whether that is kept.

    `short` is its name with the shapes of its tensors alone.
    """

    operator: str
    short: str
    calls: int
    ours: float
    theirs: float
    kept: bool


def fastest(
    calls: Sequence[Any],
    ours: Run,
    make: Callable[[set[str]], Run],
    inputs: Sequence[Any],
    device: Any,
    until: float = math.inf,
    longest: float = 0.0,
) -> tuple[Run, list[Tried]]:
    """The fastest of `ours` and what `make` gives with some nodes, by name, in PyTorch, and all that was tried.

    `calls` are the nodes that we would compile, `inputs` tensors that the module may be called with on its device.
    Nothing is tried any more that would not be done `until` then, by the monotonic clock, if it took as long as the
    longest one before, at first `longest` seconds, nor where there is no memory for it.
    """
    best, kept, tried = ours, set[str](), list[Tried]()
    groups = _groups(calls)
    alone = {name: call_seconds([_alone(nodes[0], device)], device, until)[0] for name, nodes in groups.items()}
    for name in sorted(groups, key=lambda name: -len(groups[name]) * alone[name])[:MOST_TRIED]:
        begun = time.monotonic()
        if begun + longest >= until:
            break
        nodes = {node.name for node in groups[name]}
        try:
            other = make(kept | nodes)
            before, after = call_seconds([partial(run, *inputs) for run in (best, other)], device, until)
        except (torch.OutOfMemoryError, TeError) as error:
            logger.info("%s is not tried in PyTorch: %s", name, error)
            continue
        longest = max(longest, time.monotonic() - begun)
        faster = after < (1 - GAIN) * before
        tried.append(Tried(name, _short(groups[name][0]), len(nodes), before, after, faster))
        if faster:
            best, kept = other, kept | nodes
    return best, tried


def table(tried: Sequence[Tried]) -> str:
    """The operators that were tried, each with what a call of the module takes without and with PyTorch's kernel."""
    rows = [
        [t.operator, counted(t.calls, "call"), seconds_text(t.ours), seconds_text(t.theirs), "PyTorch's" * t.kept]
        for t in tried
    ]
    return "\n".join(columns_of([["operator", "", "ours", "with PyTorch's", "kept"], *rows]))


def _groups(calls: Sequence[Any]) -> Mapping[str, list[Any]]:
    """The nodes of operators with kernels of their own, equal ones together, by what they are."""
    found: dict[str, list[Any]] = {}
    for node in calls:
        namespace, _, rest = str(node.target).partition(".")
        if namespace == "aten" and rest.partition(".")[0] in OPERATORS:
            found.setdefault(_text(node), []).append(node)
    return found


def _shape(node: Any) -> str:
    return "x".join(map(str, node.meta["val"].shape))


def _short(node: Any) -> str:
    """An operator without its namespace, and its tensors: `addmm(7, 4x5, 5x7)`."""
    shapes = [_shape(n) for n in node.args if isinstance(n, torch.fx.Node)]
    return f"{str(node.target).split('.')[1]}({', '.join(shapes)})"


def _text(node: Any) -> str:
    def of(value: Any) -> str:
        if isinstance(value, torch.fx.Node):
            return _shape(value)
        return f"[{', '.join(map(of, value))}]" if isinstance(value, list | tuple) else str(value)

    named = [f"{name}={of(value)}" for name, value in node.kwargs.items()]
    return f"{node.target}({', '.join([*map(of, node.args), *named])})"


def _alone(node: Any, device: Any) -> Run:
    """A call of an operator on tensors like those that the graph gives it."""
    args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: like(n.meta["val"], device))
    return lambda: node.target(*args, **kwargs)


def like(value: Any, device: Any) -> Any:
    """A tensor of the shape and dtype of another one: normal floats, and 0 for what may be an index.

    It lies as the other does, where that is dense.  What is no tensor is given back.
    """
    if not isinstance(value, torch.Tensor):
        return value
    stride = value.stride() if is_dense(value) else torch.empty(value.shape, device="meta").stride()
    drawn = torch.float32 if value.dtype.is_floating_point and value.dtype.itemsize == 1 else value.dtype
    made = torch.empty_strided(value.shape, stride, dtype=drawn, device=device)
    return made.normal_().to(value.dtype) if value.dtype.is_floating_point else made.zero_()


def call_seconds(runs: Sequence[Run], device: Any, until: float = math.inf) -> list[float]:
    """Medians of the seconds of a call, in turns; one that is long is called once a turn.

    No turn begins after `until`, by the monotonic clock; where none could, single calls count.
    A GPU's calls return at once, so how many fill a slice is known from one that is waited for.
    """
    single = [_warm(run, device, until) for run in runs]
    counts = [min(MOST_CALLS, max(1, int(SLICE / seconds))) for seconds in single]
    figures: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        if time.monotonic() >= until:
            break
        for run, count, found in zip(runs, counts, figures, strict=True):
            found.append(_spent(run, count, device) / count)
    return [statistics.median(found or [one]) for found, one in zip(figures, single, strict=True)]


def _warm(run: Run, device: Any, until: float) -> float:
    """The seconds of a second call; of the first one where time is out."""
    first = _spent(run, 1, device)
    return first if time.monotonic() >= until else _spent(run, 1, device)


def _spent(run: Run, count: int, device: Any) -> float:
    """The seconds of so many calls."""
    _wait(device)
    start = time.perf_counter()
    for _ in range(count):
        run()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: Any) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
