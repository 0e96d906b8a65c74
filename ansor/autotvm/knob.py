"""The plain knob, and what all knobs share: their kinds in records and the numbers they give to a cost model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from te_lite.errors import RecordError, require

from .annotate import AnnotateEntity, AnnotateSpace
from .errors import TemplateError
from .reorder import ReorderEntity, ReorderSpace
from .split import SplitEntity, SplitSpace

Array = np.ndarray[Any, np.dtype[Any]]
ANNOTATIONS = (
    "none", "unroll", "vec", "blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z",
    "vthread", "fuse",
)  # fmt: skip


@dataclass(frozen=True)
class OtherOptionEntity:
    """A value: an integer, a number or a text."""

    val: Any

    def to_json(self) -> list[Any]:
        return ["ot", self.val]

    def __repr__(self) -> str:
        return str(self.val)


@dataclass(frozen=True)
class OtherOptionSpace:
    """The values of a plain knob."""

    entities: tuple[OtherOptionEntity, ...]


KnobSpace = SplitSpace | ReorderSpace | AnnotateSpace | OtherOptionSpace
Entity = SplitEntity | ReorderEntity | AnnotateEntity | OtherOptionEntity


def option_space(name: str, candidate: Sequence[Any]) -> OtherOptionSpace:
    """The choices of `define_knob`.  Raises TemplateError for none, or for a value that JSON cannot say."""
    values = list(candidate)
    require(values, TemplateError, f"knob {name}", "at least one value is needed")
    for value in values:
        ok = value is None or isinstance(value, bool | int | float | str)
        require(ok, TemplateError, f"knob {name}", "a value is a number, a text, True, False or None", got=value)
    return OtherOptionSpace(tuple([OtherOptionEntity(v) for v in values]))


def entity_from_json(kind: Any, value: Any) -> Entity:
    """The entity of a record.  Raises RecordError for an unknown kind or a value that does not fit it."""
    whole = isinstance(value, list) and len(value) <= 64
    numbers = whole and all(isinstance(v, int) and not isinstance(v, bool) for v in value)
    match kind:
        case "sp" if numbers:
            return SplitEntity(tuple(value))
        case "re" if numbers:
            return ReorderEntity(tuple(value))
        case "an" if whole and all(isinstance(v, int | str) for v in value):
            return AnnotateEntity(tuple(value))
        case "ot" if value is None or isinstance(value, bool | int | float | str):
            return OtherOptionEntity(value)
    law = "a knob is of kind sp, re, an or ot with a fitting value"
    raise RecordError(f"record, config: {law}, got {str(kind)[:20]} {str(value)[:60]}")


def knob_numbers(knob: KnobSpace, entity: Entity) -> list[float]:
    """What `get_flatten_feature` says of a choice.

    A split gives the lengths of its loops, the outer one among them; an order its numbers; annotations a 1 among
    eleven zeros each; a value itself, or its place among the values when not all of them are numbers.
    """
    match entity:
        case SplitEntity():
            lengths = entity.lengths(knob.axis.length) if isinstance(knob, SplitSpace) else entity.size
            return [float(n) for n in lengths]
        case ReorderEntity():
            return [float(k) for k in entity.perm]
        case AnnotateEntity() if any(isinstance(a, int) for a in entity.anns):
            return [float(a) for a in entity.anns]
        case AnnotateEntity():
            return [float(a == known) for a in entity.anns for known in ANNOTATIONS]
        case OtherOptionEntity(val):
            values = [e.val for e in knob.entities if isinstance(e, OtherOptionEntity)]
            numeric = all(isinstance(v, bool | int | float) for v in values)
            return [float(val) if numeric else float(values.index(val))]
