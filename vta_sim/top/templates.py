"""The template of the accelerator: knobs around the schedule of a convolution.

    task = create("conv2d_packed.vta", args=(data, kernel, (1, 1), (1, 1), (1, 1), "NCHW1n16c", "int32"), target="vta")

A configuration that is no program is refused with the reason, from the sizes alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from ansor.autotvm import get_config, template
from te_lite import Schedule, Tensor

from ..core.config import Config
from . import (
    ConvKnobs,
    conv2d_packed,
    fused,
    product_flop,
    requantized,
    schedule_conv2d_packed,
)
from .conv2d import TAG

THREADS = (1, 2)
_machine: ContextVar[Config | None] = ContextVar("machine of templates", default=None)


@contextmanager
def on_machine(config: Config) -> Iterator[None]:
    """Convolutions whose templates run inside are for this machine instead of the default one."""
    token = _machine.set(config)
    try:
        yield
    finally:
        _machine.reset(token)


def _conv2d(
    data: Tensor,
    kernel: Tensor,
    strides: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    layout: str,
    out_dtype: str,
) -> tuple[Schedule, list[Tensor]]:
    """A convolution, shifted to the right by 8 bits and clipped to 0..127; seven knobs."""
    output = requantized(conv2d_packed(data, kernel, strides, padding, dilation, layout, out_dtype))
    return schedule_with_knobs(output), [data, kernel, output]


def schedule_with_knobs(output: Tensor) -> Schedule:
    """The schedule of a convolution and what is fused to it, with the seven knobs of the current configuration.

    Raises CompileError, with the reason, for a configuration that is no program.
    """
    parts = fused(output, TAG)
    conv = parts.core.output()
    cfg = get_config()
    cfg.add_flop(product_flop(conv))
    n, co, oh, ow, _, _ = conv.shape
    extents = {"tile_b": n, "tile_h": oh, "tile_w": ow, "tile_ci": parts.inputs.shape[1], "tile_co": co}
    tiles = _tiles(cfg, extents)
    return schedule_conv2d_packed(
        ConvKnobs(**tiles, **_threads(cfg, "oc_nthread", "h_nthread")), output, _machine.get()
    )


def _tiles(cfg: Any, extents: dict[str, int]) -> dict[str, int]:
    """The inner lengths of the splits, defined in this order."""
    for name, extent in extents.items():
        cfg.define_split(name, cfg.axis(extent), num_outputs=2)
    return {name: cfg[name].size[-1] for name in extents}


def _threads(cfg: Any, *names: str) -> dict[str, int]:
    for name in names:
        cfg.define_knob(name, THREADS)
    return {name: cfg[name].val for name in names}


conv2d_template = template("conv2d_packed.vta", _conv2d)
