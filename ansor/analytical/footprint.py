"""How far loops reach: spans of axes, elements of buffers, strides; ints and lanes alike.

    spans      which extent of each axis some loops run through
    touched    how many elements of a buffer that is (`distinct`: without the gaps of a strided access)
    stride     how far the first step of a loop moves in a buffer

A read that is no affine function of the axes counts by its hull.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from te_lite.lanes import ceildiv, larger, product, smaller
from te_lite.reads import Affine, Form, Quotient, Scaled, Sum, Unknown
from te_lite.region import Linear, LoopAtom
from te_lite.state import FuseRel, SplitRel

from .loop_nests import Access, Key, Loop, Nest, running

Runs = Mapping[Key, Any]
"""How many values each loop `(stage, uid)` runs through; a loop that is missing stands still."""

UNBOUNDED = 1 << 40


def spans(nest: Nest, runs: Runs) -> tuple[Any, ...]:
    """How far each root axis of the nest's stage reaches (number of values, hull) while the loops `runs` run."""
    stage = nest.stage
    span: dict[int, Any] = {uid: runs[nest.k, uid] for uid in range(len(stage.vars)) if (nest.k, uid) in runs}
    for rel in reversed(stage.relations):
        match rel:
            case FuseRel(parts=parts, fused=fused) if fused in span:
                rest = span[fused]
                for part in reversed(parts):
                    extent = stage.vars[part].extent
                    span[part] = smaller(rest, extent)
                    rest = ceildiv(rest, extent)
            case SplitRel(parent=parent, children=children):
                moving = [(c, s) for c, s in zip(children, nest.strides[parent], strict=True) if c in span]
                if moving:
                    reach = 1 + sum([(span[c] - 1) * s for c, s in moving])
                    span[parent] = smaller(reach, stage.vars[parent].extent)
    out = []
    for root, region in enumerate(nest.bounds.regions[nest.k]):
        out.append(span.get(root, 1) + _reach(region.min, lambda atom: runs.get((atom.stage, atom.uid), 1) - 1))
    return tuple(out)


def _reach(low: Linear, move: Callable[[LoopAtom], Any]) -> Any:
    """How far `low` goes when each loop goes `move` steps (0: not at all)."""
    total: Any = 0
    for atom, c in low.terms.items():
        if isinstance(atom, LoopAtom):
            steps = move(atom)
        else:
            inner = _reach(atom.base, move)
            steps = smaller(inner, atom.divisor - 1) if atom.mod else ceildiv(inner, atom.divisor)
        if not (isinstance(steps, int) and steps == 0):
            total = total + abs(c) * steps
    return total


def form_span(form: Form, axes: Sequence[Any], size: Any) -> Any:
    """How many values an index takes (hull), at most `size`, when the reader's axes reach over `axes` values."""
    match form:
        case Affine(terms=terms):
            return smaller(1 + sum([abs(c) * (axes[a] - 1) for a, c in terms]), size)
        case Sum(parts=parts):
            return smaller(1 + sum([form_span(p, axes, UNBOUNDED) - 1 for p in parts]), size)
        case Scaled(part=part, factor=factor):
            return smaller(1 + abs(factor) * (form_span(part, axes, UNBOUNDED) - 1), size)
        case Quotient(part=part, divisor=divisor, mod=mod):
            inner = form_span(part, axes, UNBOUNDED)
            return smaller(smaller(inner, divisor) if mod else ceildiv(inner, divisor), size)
        case Unknown():
            return size


def dim_spans(access: Access, axes: Sequence[Any]) -> tuple[Any, ...]:
    """How many values each index of an access takes."""
    if access.forms is None:
        return tuple([smaller(axes[d], size) for d, size in enumerate(access.shape)])
    return tuple([form_span(f, axes, size) for f, size in zip(access.forms, access.shape, strict=True)])


def touched(access: Access, axes: Sequence[Any]) -> Any:
    """Elements (of the hull) that an access reaches while the axes reach over `axes` values."""
    return product(dim_spans(access, axes))


def distinct(nest: Nest, access: Access, runs: Runs, axes: Sequence[Any]) -> Any:
    """Elements that an access reaches while the loops `runs` run: the hull, or less when it has gaps."""
    points: Any = 1
    for loop in nest.loops:
        if loop.key in runs:
            points = points * np.where(moves(nest, access, loop), runs[loop.key], 1)
    return smaller(touched(access, axes), points)


def moves(nest: Nest, access: Access, loop: Loop) -> Any:
    """Whether an access reaches more than one element while `loop` runs (a truth value or lanes of it)."""
    if loop.key not in nest.alone:
        nest.alone[loop.key] = spans(nest, running([loop]))
    return np.greater(touched(access, nest.alone[loop.key]), 1)


def contiguous_run(access: Access, axes: Sequence[Any]) -> Any:
    """Elements that lie side by side in memory: the innermost index, and the next one where that one is whole."""
    run: Any = 1
    whole: Any = 1
    for span, size in zip(reversed(dim_spans(access, axes)), reversed(access.shape), strict=True):
        run = run * np.where(whole, span, 1)
        whole = whole * np.where(np.equal(span, size), 1, 0)
    return run


def steps_of(nest: Nest, loop: Loop) -> tuple[Any, ...]:
    """How far each root axis of the nest's stage moves when `loop` goes from 0 to 1."""
    if loop.key not in nest.steps:
        nest.steps[loop.key] = _steps(nest, loop)
    return nest.steps[loop.key]


def _steps(nest: Nest, loop: Loop) -> tuple[Any, ...]:
    stage = nest.stage
    move: dict[int, Any] = {loop.uid: 1} if loop.stage == nest.k else {}
    for rel in reversed(stage.relations):
        match rel:
            case FuseRel(parts=parts, fused=fused) if fused in move:
                rest = move[fused]
                for part in reversed(parts):
                    extent = stage.vars[part].extent
                    move[part] = rest % extent
                    rest = rest // extent
            case SplitRel(parent=parent, children=children):
                strides = zip(children, nest.strides[parent], strict=True)
                moving = [(c, s) for c, s in strides if c in move]
                if moving:
                    move[parent] = sum([move[c] * s for c, s in moving])
    out = []
    for root, region in enumerate(nest.bounds.regions[nest.k]):
        outside = _reach(region.min, lambda atom: int((atom.stage, atom.uid) == loop.key))
        out.append(move.get(root, 0) + outside)
    return tuple(out)


def stride(nest: Nest, access: Access, loop: Loop) -> Any:
    """How many elements an access moves in its buffer when `loop` goes from 0 to 1 (absolute; 0: it stays)."""
    steps = steps_of(nest, loop)
    total: Any = 0
    size: Any = 1
    for d in range(len(access.shape) - 1, -1, -1):
        step = steps[d] if access.forms is None else _form_step(access.forms[d], steps)
        total = total + step * size
        size = size * access.shape[d]
    return abs(total)


def _form_step(form: Form, steps: Sequence[Any]) -> Any:
    match form:
        case Affine(terms=terms):
            return sum([c * steps[a] for a, c in terms])
        case Sum(parts=parts):
            return sum([_form_step(p, steps) for p in parts])
        case Scaled(part=part, factor=factor):
            return factor * _form_step(part, steps)
        case Quotient(part=part, divisor=divisor, mod=mod):
            inner = _form_step(part, steps)
            return inner % divisor if mod else inner // divisor
        case Unknown():
            return 1


def unit_bytes(access: Access, axes: Sequence[Any], unit: int) -> Any:
    """Bytes of the cache lines or sectors, of `unit` bytes, that an access touches."""
    run = contiguous_run(access, axes)
    return touched(access, axes) / run * ceildiv(run * access.element, unit) * unit


def innermost_within(loops: Sequence[Loop], limit: Any, partly: Any) -> dict[Key, Any]:
    """How far each loop runs when only the innermost ones run, as long as they make at most `limit` iterations.

    The first loop that is too long runs in part, as far as that makes at most `partly` iterations.  Vector loops run,
    and count as one iteration.
    """
    runs: dict[Key, Any] = {}
    inside: Any = 1
    going: Any = 1
    for loop in reversed(loops):
        count = np.where(loop.vector, 1, loop.extent)
        fits = going * np.where(np.less_equal(inside * count, limit), 1, 0)
        part = smaller(larger(partly // inside, 1), count)
        runs[loop.key] = np.where(np.logical_or(fits, loop.vector), loop.extent, part)
        inside = inside * count
        going = fits
    return runs
