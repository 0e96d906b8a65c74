"""PyTorch's time of the operators and subgraphs of `benchmarks.study`, in turns with ours, and a figure of bars.

PyTorch is called eagerly, as the paper does; images are tried in both memory formats, and the faster one counts
(`benchmarks/pytorch.py`).  Both results are compared with PyTorch's in float64 first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from ansor.cli.torch_side import exact_torch
from ansor.report.scale import Scale
from ansor.viz.svg import CHARACTER, Svg, picture, rectangle, rule, text
from benchmarks.operator_rows import Library
from benchmarks.operator_sides import TOLERANCES, Sides, random_tensors
from benchmarks.study_live import Case

EAGER = ("eager",)
EPSILON = 1e-5
TORCH = "PyTorch"


# ------------------------------------------------------------------------------------------- PyTorch's operators


def library(torch: Any, operator: str, args: Sequence[int]) -> Library:
    """PyTorch's operator on tensors that lie as ours do."""
    f = torch.nn.functional
    match operator:
        case "C1D" | "C2D" | "C3D" | "GRP" | "DIL":
            window = 1 if operator == "C1D" else 3 if operator == "C3D" else 2
            stride, padding, *others = args[window + 4 :]
            dilation, groups = [*others, 1, 1][:2]
            conv = getattr(f, f"conv{window}d")
            return _images(
                lambda x, w: conv(x, w, None, stride, padding, dilation, groups),
                lambda w: w.permute(-1 % w.ndim, -2 % w.ndim, *range(window)),
            )
        case "DEP":
            channels, _, stride, padding = args[3:7]
            return _images(
                lambda x, w: f.conv2d(x, w, None, stride, padding, groups=channels), lambda w: w.permute(3, 0, 1, 2)
            )
        case "T2D":
            stride, padding = args[6:8]
            return _images(
                lambda x, w: f.conv_transpose2d(x, w, None, stride, padding), lambda w: w.permute(2, 3, 0, 1)
            )
        case "CAP":
            return _capsules(f, *args[6:8])
        case "CBR":
            return _conv_bn_relu(torch, *args[6:8])
        case "GMM":
            return Library(torch.matmul)
        case "NRM":
            return Library(lambda a: torch.linalg.vector_norm(a, dim=(1, 2)))
        case _:
            return Library(lambda query, value: torch.matmul(query.permute(0, 2, 1, 3), value.permute(0, 2, 3, 1)))


def _images(call: Callable[[Any, Any], Any], turned: Callable[[Any], Any]) -> Library:
    """A convolution of images whose channels come last; `turned` puts the filters as PyTorch wants them."""
    return Library(
        call, lambda data, weight: (data.movedim(-1, 1), turned(weight)), lambda result: result.movedim(1, -1)
    )


def _capsules(f: Any, stride: int, padding: int) -> Library:
    """Capsules as one convolution: the rows of the matrices are images, and their columns are channels."""

    def enter(data: Any, weight: Any) -> tuple[Any, Any]:
        n, height, width, size, _, channels = data.shape
        images = data.permute(0, 3, 4, 5, 1, 2).reshape(n * size, size * channels, height, width)
        return images, weight.permute(3, 5, 2, 4, 0, 1).reshape(-1, size * channels, *weight.shape[:2])

    def leave(size: int) -> Callable[[Any], Any]:
        return lambda y: y.reshape(-1, size, size, y.shape[1] // size, *y.shape[2:]).permute(0, 4, 5, 1, 2, 3)

    return Library(lambda x, w: f.conv2d(x, w, None, stride, padding), enter, leave(4))


def _conv_bn_relu(torch: Any, stride: int, padding: int) -> Library:
    """A convolution, and a normalisation whose mean is 0 and whose deviation is 1, so that it scales and shifts."""
    f = torch.nn.functional

    def call(data: Any, weight: Any, bias: Any, scale: Any, offset: Any, mean: Any, variance: Any) -> Any:
        conv = f.conv2d(data, weight, bias, stride, padding)
        return torch.relu_(f.batch_norm(conv, mean, variance, scale, offset, eps=EPSILON))

    def enter(data: Any, weight: Any, *vectors: Any) -> tuple[Any, ...]:
        mean = torch.zeros_like(vectors[0])
        return data.movedim(-1, 1), weight.permute(3, 2, 0, 1), *vectors, mean, torch.full_like(mean, 1 - EPSILON)

    return Library(call, enter, lambda result: result.movedim(1, -1))


def beside(case: Case, log: Path) -> dict[str, float]:
    """Seconds of the best program of a log and of PyTorch's operator, medians of turns."""
    torch, task = exact_torch(), case.tasks[0]
    device, found = ("cuda", "cuda") if task.target.is_gpu else ("cpu", "c")
    inputs = random_tensors(torch, task.compute_dag.tensors[:-1], device)
    theirs = library(torch, case.operator, case.args)
    exact = theirs.leave(theirs.call(*theirs.enter(*[x.double() for x in inputs])))
    sides = Sides(torch, exact, TOLERANCES[""])
    sides.add_library(theirs, inputs, EAGER)
    sides.add_ours(task, log, inputs)
    medians = {name: median(seconds) for name, seconds in sides.seconds(found).items()}
    return {"ours": medians.pop("ours"), TORCH: min(medians.values())}


# ------------------------------------------------------------------------------------------------- the figure

HEIGHT, LEFT, TOP, BOTTOM, BAR = 260, 54, 34, 42, 13
FILLS = ("#000", "#888", "#fff", "#ccc", "#555", "#eee")


def relative_speeds(
    us: Mapping[str, Mapping[str, float]], in_turns: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """Speeds relative to the best of each task, by task and competitor.

    PyTorch is one where it was timed in all tasks: as often as fast as the first competitor as it was in turns with it.
    """
    out = {}
    for task, of in us.items():
        seconds = dict(of)
        if all(name in in_turns for name in us):
            turns = in_turns[task]
            seconds[TORCH] = next(iter(of.values())) * turns[TORCH] / turns["ours"]
        out[task] = {name: min(seconds.values()) / value for name, value in seconds.items()}
    return out


def by_operator(speeds: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Geometric means over the shapes of an operator, by operator and batch: of speeds by case and competitor."""
    groups: dict[str, list[Mapping[str, float]]] = {}
    for name, of in speeds.items():
        operator, batch = re.sub(r"\d?_b(\d+)$", "", name), name.rpartition("_b")[2]
        groups.setdefault(f"{operator} {batch}", []).append(of)
    return {
        title: {who: float(np.exp(np.mean([np.log(of[who]) for of in found]))) for who in found[0]}
        for title, found in groups.items()
    }


def bars(groups: Mapping[str, Mapping[str, float]], label: str, y_name: str) -> Svg:
    """A group of bars each, from 0 to 1; `groups` is by title and competitor, the same ones in all of them."""
    who = list(next(iter(groups.values())))
    step = max(BAR * (len(who) + 1), 6 * CHARACTER)
    width, bottom, scale = LEFT + step * len(groups) + 14, HEIGHT - BOTTOM, Scale(0.0, 1.0)
    parts, x = list[str](), float(LEFT)
    for k, name in enumerate(who):
        parts += [rectangle(f"b{k}", x, 8, 12, 12), text(x + 16, 18, name)]
        x += 34 + CHARACTER * len(name)
    for tick in scale.ticks():
        y = bottom - scale.place(tick) * (bottom - TOP)
        parts += [rule("grid", LEFT, y, width - 14, y), text(LEFT - 6, y + 4, f"{tick:g}", "end")]
    for k, (title, speeds) in enumerate(groups.items()):
        left = LEFT + k * step + BAR / 2
        for n, (name, speed) in enumerate(speeds.items()):
            height = scale.place(speed) * (bottom - TOP)
            parts.append(rectangle(f"b{n}", left + n * BAR, bottom - height, BAR, height, f"{name}: {speed:.2f}"))
        for row, word in enumerate(title.split()):
            parts.append(text(left + BAR * len(who) / 2, bottom + 15 * (row + 1), word, "middle"))
    parts.append(text(LEFT, HEIGHT - 2, y_name, "start", "small"))
    fills = "".join(f"rect.b{k} {{ fill: {fill} }}\n" for k, fill in enumerate(FILLS))
    return picture(width, HEIGHT, label, parts, f"line.grid {{ stroke: #ccc }}\n{fills}")
