"""Sliding windows: kernel extents, strides, dilations and pads of convolutions and pools.

ONNX writes pads as all begins and then all ends, which is the order of the graph's `padding` too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from .node import Node


@dataclass(frozen=True)
class Window:
    """One entry per spatial axis; `before` and `after` are the pads."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def padding(self) -> tuple[int, ...]:
        """All begins, then all ends."""
        return self.before + self.after

    @property
    def reach(self) -> tuple[int, ...]:
        """Extents of the dilated kernel."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))


def read_window(node: Node, extents: Sequence[int], kernel: Sequence[int] | None = None) -> Window:
    """The window of `node` over spatial axes of these extents; `kernel` is the default of `kernel_shape`.

    `auto_pad` becomes pads.  Raises GraphError for lists of a wrong length, strides below 1 and negative pads.
    """
    window = bare_window(node, len(extents), kernel)
    before, after = _pads(node, extents, window)
    return replace(window, before=before, after=after)


def bare_window(node: Node, n: int, kernel: Sequence[int] | None = None) -> Window:
    """The window over `n` spatial axes without its pads."""
    ones, none = (1,) * n, (0,) * n
    sizes = _positive(node, "kernel_shape", n, kernel)
    return Window(sizes, _positive(node, "strides", n, ones), _positive(node, "dilations", n, ones), none, none)


def _positive(node: Node, name: str, n: int, default: Sequence[int] | None) -> tuple[int, ...]:
    found = node.integers(name, default)
    node.require(len(found) == n and min(found) >= 1, f"{name} must be {n} integers of at least 1", value=found)
    return found


def explicit_pads(node: Node, n: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The attribute `pads` as begins and ends; zeros when it is absent."""
    pads = node.integers("pads", (0,) * (2 * n))
    node.require(len(pads) == 2 * n and min(pads) >= 0, f"pads must be {2 * n} integers of at least 0", pads=pads)
    return pads[:n], pads[n:]


def auto_pad(node: Node) -> str:
    """The attribute `auto_pad`, checked."""
    mode = node.text("auto_pad", "NOTSET")
    modes = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    node.require(mode in modes, f"auto_pad must be one of {', '.join(modes)}", auto_pad=mode)
    return mode


def _pads(node: Node, extents: Sequence[int], window: Window) -> tuple[tuple[int, ...], tuple[int, ...]]:
    mode, given = auto_pad(node), explicit_pads(node, len(extents))
    if mode == "NOTSET":
        return given
    if mode == "VALID":
        return window.before, window.after
    totals = [max(-(-d // s) * s - s + k - d, 0) for d, s, k in zip(extents, window.strides, window.reach, strict=True)]
    return halves(totals, upper=mode == "SAME_UPPER")


def halves(totals: Sequence[int], upper: bool) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Totals of pads as begins and ends; of an odd one the larger half comes last when `upper`."""
    small = tuple(t // 2 for t in totals)
    large = tuple(t - t // 2 for t in totals)
    return (small, large) if upper else (large, small)
