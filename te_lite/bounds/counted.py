"""Indices that flatten axes in the same order as a fused loop, and so are affine functions of the value of that loop.

    for r in 0..N*H*W, fused of n, h, w:  reads s[(n*H + h)*W + w, f],  stores y[n, h, w, f]

Both are at r, of which n is r // (H*W), h is r // W % H, and w is r % W.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..schedule.loop_value import fused_strides
from ..schedule.state import FuseRel, Stage
from .reads import Affine, Form


@dataclass(frozen=True)
class Counted:
    """An index that is `factor` times the value of a loop, fused of axes, plus `rest`."""

    rel: FuseRel
    factor: int
    rest: Affine


def counted_through(stage: Stage, form: Form) -> Counted | None:
    """An index by a loop that was fused of axes of known extents, if it counts through these in the same way."""
    if not isinstance(form, Affine) or len(form.terms) < 2:
        return None
    terms = dict(form.terms)
    for rel in [rel for rel in stage.relations if isinstance(rel, FuseRel) and terms.keys() >= set(rel.parts)]:
        strides, factor = fused_strides(stage, rel), terms[rel.parts[-1]]
        known = all(isinstance(stage.vars[p].extent, int) for p in rel.parts)
        if known and all(terms[part] == factor * stride for part, stride in strides.items()):
            rest = tuple([(axis, c) for axis, c in form.terms if axis not in strides])
            return Counted(rel, factor, Affine(rest, form.const))
    return None
