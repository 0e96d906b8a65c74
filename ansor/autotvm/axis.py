"""The loops that knobs speak of, before any schedule exists: a name and a length each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from te_lite.errors import require
from te_lite.expr.expr import IterVar

from .errors import TemplateError


@dataclass(frozen=True)
class VirtualAxis:
    """A loop of `length` iterations; -1 when a knob decides the length."""

    name: str
    length: int


def virtual_axis(axis: Any, name: str = "axis") -> VirtualAxis:
    """The axis that an integer, an axis of an operation or another virtual axis stands for.

    Raises TemplateError for anything without a known length, a schedule's loop handle among them.
    """
    if isinstance(axis, VirtualAxis):
        return axis
    extent: Any = axis.extent if isinstance(axis, IterVar) else axis
    ok = isinstance(extent, int) and not isinstance(extent, bool) and extent > 0
    require(ok, TemplateError, f"knob {name}", "an axis is a length, op.axis[k] or the axis of a knob", got=axis)
    return VirtualAxis(axis.name if isinstance(axis, IterVar) else name, extent)


def virtual_axes(axes: Sequence[Any], name: str) -> tuple[VirtualAxis, ...]:
    """`virtual_axis` of each; at least one."""
    out = tuple([virtual_axis(axis, f"{name}.{k}") for k, axis in enumerate(axes)])
    require(out, TemplateError, f"knob {name}", "at least one axis is needed")
    return out


def know(policy: Any, known: Sequence[str], name: str) -> None:
    """Raises TemplateError unless `policy` is one of `known`."""
    require(policy in known, TemplateError, f"knob {name}", f"the policy must be one of {', '.join(known)}", got=policy)


def only(options: dict[str, Any], known: Sequence[str], name: str) -> None:
    """Raises TemplateError for an option that the policy does not know."""
    unknown = sorted(set(options) - set(known))
    law = f"the options of this policy are {', '.join(known) or 'none'}"
    require(not unknown, TemplateError, f"knob {name}", law, got=unknown)
