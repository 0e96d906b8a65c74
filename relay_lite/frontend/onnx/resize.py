"""Resize and Upsample: every output is a weighted sum of source elements at positions known at import, axis by axis.

Where the graph's own image operator reads the same elements with the same weights it is used; otherwise an axis becomes
a few gathers with constant positions, one per tap: 1 for nearest, 2 for linear, 4 for cubic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np

from ansor.core.values.checks import require_computed
from te_lite.expr.expr import FLOATS

from ...ir.extents import is_open
from ...ir.nodes import Array, Expr
from .emit import add, call, cast, const, mul, value_of
from .node import Converters, Node

COORDINATES = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)  # fmt: skip
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


@dataclass(frozen=True)
class Rule:
    """How positions are computed; `rounding` is `simple` before opset 11: down when growing, up when shrinking."""

    mode: str
    coordinates: str
    rounding: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False
    fill: float = 0.0


def upsample_attrs(node: Node) -> Expr:
    """Upsample 7: the scales are an attribute."""
    return _resized(node, node.numbers("scales"), None, _old_rule(node))


def upsample(node: Node) -> Expr:
    """Upsample 9 and Resize 10: the scales are an input, positions are asymmetric."""
    return _resized(node, _scales(node, 1), None, _old_rule(node))


def _old_rule(node: Node) -> Rule:
    return Rule(_mode(node, ("nearest", "linear")), "asymmetric", "simple")


def resize(node: Node) -> Expr:
    """Resize from opset 11 on: X, roi (which only crops read), and one of scales and sizes."""
    coordinates = node.text("coordinate_transformation_mode", "half_pixel")
    law = f"coordinate_transformation_mode must be one of {', '.join(COORDINATES)}"
    node.require(coordinates in COORDINATES, law, coordinate_transformation_mode=coordinates)
    rounding = node.text("nearest_mode", "round_prefer_floor")
    node.require(rounding in ROUNDINGS, f"nearest_mode must be one of {', '.join(ROUNDINGS)}", nearest_mode=rounding)
    mode = _mode(node, ("nearest", "linear", "cubic"))
    outside = bool(node.integer("exclude_outside", 0))
    antialias = bool(node.integer("antialias", 0)) and mode != "nearest"
    fill = node.number("extrapolation_value", 0.0)
    rule = Rule(mode, coordinates, rounding, node.number("cubic_coeff_a", -0.75), outside, antialias, fill)
    sizes, _ = node.list_at(3, "sizes", since=11), node.optional(1)
    return _resized(node, _scales(node, 2), sizes or None, rule)


def _mode(node: Node, modes: Sequence[str]) -> str:
    mode = {"bilinear": "linear"}.get(node.text("mode", "nearest"), node.text("mode", "nearest"))
    node.require(mode in modes, f"mode must be one of {', '.join(modes)}", mode=mode)
    return mode


def _scales(node: Node, index: int) -> tuple[float, ...] | None:
    found = node.value(index)
    return None if found is None or found.size == 0 else tuple(float(v) for v in found.reshape(-1))


def _resized(node: Node, scales: Sequence[float] | None, sizes: Sequence[int] | None, rule: Rule) -> Expr:
    x = node.input(0)
    node.require((scales is None) != (sizes is None), "one of scales and sizes is needed", scales=scales, sizes=sizes)
    out, factors = _extents(node, scales, sizes)
    kept = all(is_open(new) or new or not old for new, old in zip(out, x.shape, strict=True))
    node.require(kept, "every extent of the result must be at least 1", shape=tuple(out))
    if 0 in out:
        return const(np.zeros(out), x.dtype)
    changed = [a for a in range(len(out)) if out[a] != x.shape[a] or factors[a] != 1]
    for a in changed:
        require_computed((4, out[a]), "float64", str(node))
    if rule.mode == "nearest" or x.dtype in FLOATS or not changed:
        return _interpolated(node, x, out, factors, rule)
    whole = rule.mode == "linear" and not rule.antialias and x.dtype in ("int8", "uint8", "int32")
    node.require(whole, "interpolation needs floats; without antialias linear one takes integers of 8 and 32 bits, too",
                 mode=rule.mode, antialias=rule.antialias, dtype=x.dtype)  # fmt: skip
    return cast(_interpolated(node, cast(x, "float32"), out, factors, rule), x.dtype)  # without its fraction


def _interpolated(node: Node, x: Expr, out: Sequence[int], factors: Sequence[np.float32], rule: Rule) -> Expr:
    changed = [a for a in range(len(out)) if out[a] != x.shape[a] or factors[a] != 1]
    if rule.coordinates == "tf_crop_and_resize":
        return _cropped(node, x, out, rule)
    taps = {a: _taps(rule, x.shape[a], out[a], factors[a]) for a in changed}
    native = None if rule.antialias else _native(x, out, rule, taps)
    if native is not None:
        return native
    for axis, found in taps.items():
        x = _along(x, axis, found)
    return x


def _cropped(node: Node, x: Expr, out: Sequence[int], rule: Rule) -> Expr:
    """The part of the data between the bounds of `roi` (0 to 1 on every axis); `fill` where it is outside."""
    roi = node.value(1)
    axes = _axes(node)
    node.require(roi is not None and roi.size == 2 * len(axes), f"a roi of {2 * len(axes)} numbers is needed")
    assert roi is not None
    seen: Array = np.ones((), bool)
    ends = roi.reshape(2, len(axes)).astype(
        "float32"
    )  # all in float32 and in ONNX's order, which meets the ends exactly
    for axis, start, end in zip(axes, *ends, strict=True):
        extent, count = x.shape[axis], out[axis]
        first = start * (extent - 1) if count > 1 else (start + end) * (extent - 1) / 2
        at = first + np.arange(count, dtype="float32") * (end - start) * (extent - 1) / max(count - 1, 1)
        if (start, end, count) != (0, 1, extent):
            x = _along(x, axis, _taps_at(rule, at, extent, np.float32(count / extent)))
        inside = ((at >= 0) & (at <= extent - 1)).reshape((-1,) + (1,) * (len(out) - axis - 1))
        seen = np.asarray(seen & inside)
    return x if seen.all() else call("where", const(seen, "bool"), x, const(rule.fill, x.dtype))


def _axes(node: Node) -> list[int]:
    """The axes that scales, sizes and roi speak of."""
    rank = len(node.input(0).shape)
    return [node.axis(a, rank) for a in node.integers("axes", tuple(range(rank)))]


def _extents(
    node: Node, scales: Sequence[float] | None, sizes: Sequence[int] | None
) -> tuple[list[int], list[np.float32]]:
    """The extents of the result, and the scale of every axis."""
    shape = node.input(0).shape
    axes = _axes(node)
    given = len(scales if scales is not None else sizes or ())
    node.require(given == len(axes), f"{len(axes)} scales or sizes are needed", scales=scales, sizes=sizes)
    out, factors = list(shape), [np.float32(1)] * len(shape)
    policy = node.text("keep_aspect_ratio_policy", "stretch")
    known = policy in ("stretch", "not_larger", "not_smaller")
    node.require(
        known, "keep_aspect_ratio_policy is stretch, not_larger or not_smaller", keep_aspect_ratio_policy=policy
    )
    if sizes is not None and policy != "stretch":
        ratios = [s / shape[a] for a, s in zip(axes, sizes, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        for axis in axes:
            out[axis], factors[axis] = int(np.floor(ratio * shape[axis] + 0.5)), np.float32(ratio)
        return out, factors
    for i, axis in enumerate(axes):
        if is_open(shape[axis]):
            whole = scales[i] == 1 if scales is not None else (sizes or shape)[i] is shape[axis]
            node.require(whole, "an open extent is not resized", shape=shape, scales=scales, sizes=sizes)
            continue
        extent, size = np.float32(shape[axis]), (sizes or shape)[i]
        factors[axis] = np.float32(scales[i]) if scales is not None else np.float32(size) / extent
        node.require(np.isfinite(extent * factors[axis]) or scales is None, "scales must be finite", scales=scales)
        out[axis] = int(np.floor(extent * factors[axis])) if scales is not None else size
    return out, factors


MOST_COMPARED = 1 << 24
"""Elements of the matrices on which both meanings of a resize are compared."""
Taps = list[tuple[Array, Array]]
"""Positions and weights of each source element that an output reads, one entry per output."""


def _positions(rule: Rule, extent: int, out: int, scale: np.float32) -> Array:
    """The source coordinate of every output.

    A scale that is the ratio of the extents is taken as that ratio, so that positions half-way are met exactly; another
    one counts as it is, in float32 as runtimes compute it.
    """
    exact = bool(scale == np.float32(out / extent))
    kind: Any = np.float64 if exact else np.float32

    def back(x: Array) -> Array:
        return np.asarray(x * extent / out if exact else x / scale)

    if rule.coordinates == "half_pixel_symmetric" and not exact:
        shrink = kind(out) / (scale * kind(extent))
        centres = np.arange(out, dtype=kind) + kind(0.5)
        return np.asarray(kind(extent) / 2 * (1 - shrink) + back(centres) - kind(0.5))
    return _coordinates(rule.coordinates, extent, np.arange(out, dtype=kind), back)


def _coordinates(mode: str, extent: int, o: Array, back: Callable[[Array], Array]) -> Array:
    """The source coordinates of the outputs `o`; `back` takes a distance from the result to the source."""
    out, half = len(o), o.dtype.type(0.5)
    match mode:
        case "asymmetric":
            return back(o)
        case "align_corners":
            return np.asarray(o * (extent - 1) / max(out - 1, 1))
        case "tf_half_pixel_for_nn":
            return back(o + half)
        case "pytorch_half_pixel" if out == 1:
            return o
        case _:
            return np.asarray(back(o + half) - half)


def _taps(rule: Rule, extent: int, out: int, scale: np.float32) -> Taps:
    return _taps_at(rule, _positions(rule, extent, out, scale), extent, scale)


def _taps_at(rule: Rule, at: Array, extent: int, scale: np.float32) -> Taps:
    """The elements that the positions `at` read, and their weights."""
    below = np.floor(at)
    if rule.mode == "nearest":
        return [(_inside(_rounded(at, rule.rounding, scale), extent), np.ones(len(at), np.float32))]
    if rule.antialias and scale < 1:
        return _wide_taps(rule, at, extent, float(scale))
    part = at - below
    if rule.mode == "linear":
        return [(_inside(below, extent), 1 - part), (_inside(below + 1, extent), part)]
    places = [below + k for k in (-1, 0, 1, 2)]
    weights = [_cubic(np.abs(at - p), rule.cubic) for p in places]
    if rule.exclude_outside:
        weights = [w * ((p >= 0) & (p < extent)) for w, p in zip(weights, places, strict=True)]
        total = sum(weights[1:], weights[0])
        weights = [w / total for w in weights]
    return [(_inside(p, extent), w) for p, w in zip(places, weights, strict=True)]


def _wide_taps(rule: Rule, at: Array, extent: int, scale: float) -> Taps:
    """A kernel stretched by the inverse of the scale, so that all elements have a say in a smaller result."""
    reach = (1 if rule.mode == "linear" else 2) / scale
    places = [np.floor(at) + k for k in range(int(np.floor(-reach)) + 1, int(np.ceil(reach)) + 1)]
    distances = [np.abs(at - p) * scale for p in places]
    weights = [np.maximum(1 - d, 0) if rule.mode == "linear" else _cubic(d, rule.cubic) for d in distances]
    if rule.exclude_outside:
        weights = [w * ((p >= 0) & (p < extent)) for w, p in zip(weights, places, strict=True)]
    total = sum(weights[1:], weights[0])
    return [(_inside(p, extent), w / total) for p, w in zip(places, weights, strict=True)]


def _inside(positions: Array, extent: int) -> Array:
    return np.clip(positions, 0, extent - 1).astype(np.int32)


def _rounded(at: Array, rounding: str, scale: np.float32) -> Array:
    match rounding:
        case "simple":
            return np.asarray(np.ceil(at) if scale < 1 else np.floor(at))
        case "floor":
            return np.asarray(np.floor(at))
        case "ceil":
            return np.asarray(np.ceil(at))
        case "round_prefer_ceil":
            return np.asarray(np.floor(at + at.dtype.type(0.5)))
        case _:
            return np.asarray(np.ceil(at - at.dtype.type(0.5)))


def _cubic(distance: Array, a: float) -> Array:
    """The weight of an element at a distance below 2."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.asarray(np.where(d <= 1, near, np.where(d < 2, far, 0)))


def _once(taps: Taps) -> Taps:
    """Taps that read an element twice, beyond a border, as one of all their weight, whose sign is that of the sum."""
    found = [(places, weights.copy()) for places, weights in taps]
    for (places, weights), (after, onto) in pairwise(found):
        same = places == after
        onto += weights * same
        weights[same] = 0
    return found


def _along(x: Expr, axis: int, taps: Taps) -> Expr:
    """One axis of `x` as a weighted sum of gathers; an element whose weight is 0 does not count, infinite or not."""
    behind = (1,) * (len(x.shape) - axis - 1)
    taps = [tap for tap in _once(taps) if np.any(tap[1])]
    if len(taps) == 1 and np.all(taps[0][1] == 1):
        return call("take", x, const(taps[0][0], "int32"), axis=axis)
    parts = []
    for positions, weights in taps:
        factor = np.reshape(weights, (-1, *behind))
        part = mul(call("take", x, const(positions, "int32"), axis=axis), const(factor, x.dtype))
        parts.append(part if factor.all() else call("where", const(factor != 0, "bool"), part, const(0, x.dtype)))
    return reduce(add, parts)


def _native(x: Expr, out: Sequence[int], rule: Rule, taps: dict[int, Taps]) -> Expr | None:
    """The image operator of the graph, when it computes what `taps` says."""
    if len(x.shape) != 4 or not taps or not set(taps) <= {2, 3}:
        return None
    attrs = {
        "method": "nearest_neighbor" if rule.mode == "nearest" else rule.mode,
        "coordinate_transformation_mode": {"half_pixel_symmetric": "half_pixel"}.get(
            rule.coordinates, rule.coordinates
        ),
        "rounding_method": "floor" if rule.rounding == "simple" else rule.rounding,
        "cubic_alpha": rule.cubic,
        "cubic_exclude": int(rule.exclude_outside),
    }
    if not all(_same(x.shape[axis], out[axis], attrs, taps.get(axis)) for axis in (2, 3)):
        return None
    return call("image.resize2d", x, size=tuple(out[2:]), layout="NCHW", **attrs)


def _same(extent: int, out: int, attrs: dict[str, Any], taps: Taps | None) -> bool:
    """Whether the operator gives the sums of `taps` along an axis (None: the axis as it is), seen on unit vectors."""
    if extent * max(extent, out) > MOST_COMPARED:
        return False
    units = const(np.eye(extent).reshape(1, extent, extent, 1), "float32")
    own = value_of(call("image.resize2d", units, size=(out, 1), layout="NCHW", **attrs))
    assert own is not None
    wanted = np.zeros((extent, out), np.float32) if taps is not None else np.eye(extent, dtype=np.float32)
    for positions, weights in taps or []:
        np.add.at(wanted, (positions, np.arange(out)), weights)
    return bool(np.allclose(own[0, :, :, 0], wanted, rtol=0, atol=1e-6))


CONVERTERS: Converters = {"Upsample": {7: upsample_attrs, 9: upsample}, "Resize": {10: upsample, 11: resize}}
