"""The body of a residual network of pre-activation units, in two or three dimensions (He et al., 2016, 1603.05027).

A unit normalises and rectifies before each convolution, so that the sum at its end stays linear.
"""

from __future__ import annotations

from dataclasses import dataclass

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Expr
from ..op import nn
from ..op.binary import add
from . import layers

EPSILON = 2e-5

_UNITS = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
    200: (3, 24, 36, 3),
    269: (3, 30, 48, 8),
}


@dataclass(frozen=True)
class StagePlan:
    """How many units each stage has, the channels of the stem and of each stage, and the kind of unit."""

    units: tuple[int, ...]
    filters: tuple[int, ...]
    bottle_neck: bool


@dataclass(frozen=True)
class Unit:
    """One unit: `stride` is that of every spatial axis, `dim_match` says that the shortcut is the input itself."""

    name: str
    filters: int
    stride: int
    dim_match: bool


def stage_plan(num_layers: int, height: int) -> StagePlan:
    """The plan of a depth.  Images of height up to 28 have the three-stage plan of small images.

    Raises GraphError for a depth that has no plan.
    """
    if height <= 28:
        return _small_plan(num_layers, height)
    law = f"depths are {', '.join(map(str, _UNITS))}"
    require(num_layers in _UNITS, GraphError, "resnet", law, num_layers=num_layers)
    if num_layers >= 50:
        return StagePlan(_UNITS[num_layers], (64, 256, 512, 1024, 2048), True)
    return StagePlan(_UNITS[num_layers], (64, 64, 128, 256, 512), False)


def _small_plan(num_layers: int, height: int) -> StagePlan:
    """The plan for images of height up to 28."""
    deep = (num_layers - 2) % 9 == 0 and num_layers >= 164
    shallow = (num_layers - 2) % 6 == 0 and 2 < num_layers < 164
    law = "images of height up to 28 need 6n + 2 layers below 164 or 9n + 2 from 164"
    require(deep or shallow, GraphError, "resnet", law, num_layers=num_layers, height=height)
    if deep:
        return StagePlan(((num_layers - 2) // 9,) * 3, (16, 64, 128, 256), True)
    return StagePlan(((num_layers - 2) // 6,) * 3, (16, 16, 32, 64), False)


def residual_stages(data: Expr, plan: StagePlan, layout: str, axis: int) -> Expr:
    """All units; a stage after the first one halves the image.  `axis` is that of every batch norm."""
    body = data
    for stage, (count, filters) in enumerate(zip(plan.units, plan.filters[1:], strict=True), 1):
        for index in range(1, count + 1):
            first = index == 1
            stride = 2 if first and stage > 1 else 1
            unit = Unit(f"stage{stage}_unit{index}", filters, stride, dim_match=not first)
            body = _unit(body, unit, plan.bottle_neck, layout, axis)
    return body


def norm_relu(data: Expr, name: str, axis: int) -> Expr:
    """A batch norm and a relu."""
    return nn.relu(layers.batch_norm_infer(data, name, axis=axis, epsilon=EPSILON))


def _unit(data: Expr, unit: Unit, bottle_neck: bool, layout: str, axis: int) -> Expr:
    """`convolutions(relu(norm(x))) + shortcut`; a shortcut with a convolution starts at the normalised input."""
    once = ((1, unit.stride, unit.filters // 4), (3, 1, unit.filters // 4), (1, 1, unit.filters))
    twice = ((3, unit.stride, unit.filters), (3, 1, unit.filters))
    body, shortcut = data, data
    for index, (kernel, stride, filters) in enumerate(once if bottle_neck else twice, 1):
        body = norm_relu(body, f"{unit.name}_bn{index}", axis)
        if index == 1 and not unit.dim_match:
            shortcut = body
        body = convolution(body, f"{unit.name}_conv{index}", filters, kernel, stride, layout)
    if not unit.dim_match:
        shortcut = convolution(shortcut, f"{unit.name}_sc", unit.filters, 1, unit.stride, layout)
    return add(body, shortcut)


def convolution(data: Expr, name: str, filters: int, kernel: int, stride: int, layout: str) -> Expr:
    """A cubic convolution that keeps the size of the image at stride 1."""
    rank = len(layout) - 2
    return layers.conv(
        data,
        layout,
        name=name,
        channels=filters,
        kernel_size=(kernel,) * rank,
        strides=(stride,) * rank,
        padding=(kernel // 2,) * rank,
    )
