"""Is a lowered program right in form and inside of its buffers?  Proven, refuted or neither: only the proven is built.

`verdict` looks at a program: one walk finds breaches of the laws of its form (`verify_walk.py` lists them) and the
accesses that are not in bounds at first sight; these are settled one by one (`verify_access.py`).  Then the loops whose
iterations run at once are looked at (`verify_races.py`).  `verify` refuses what is not proven.  It reads the lowered
program only, and shares no argument with the code that made it.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain

from ..errors import LowerError, UnsafeError, require
from ..loops.stmt import Buffer, LoweredFunc
from .verify_access import Counterexample, Open, Shown, settle
from .verify_races import meetings, settle_meeting
from .verify_scope import Access
from .verify_walk import Walk


@dataclass(frozen=True)
class Proven:
    """All laws hold: of the `accesses`, `enumerated` took a look at `points` points of their loops."""

    accesses: int
    enumerated: int
    points: int


@dataclass(frozen=True)
class Refuted:
    """The breach of a law; one of `in_bounds` names a point of the loops that shows it."""

    law: str
    sentence: str


@dataclass(frozen=True)
class Unproven:
    """Nothing breaks a law, and nothing shows that `law` holds: why."""

    law: str
    sentence: str


Verdict = Proven | Refuted | Unproven

_SAFE: weakref.WeakSet[LoweredFunc] = weakref.WeakSet()


def verdict(func: LoweredFunc, outputs: Collection[Buffer] = ()) -> Verdict:
    """What is known of a program; the arguments `outputs` hold nothing when it begins."""
    walk = Walk(func, outputs)
    if walk.findings:
        first = walk.findings[0]
        return Refuted(first.law, first.sentence)
    doubt: Unproven | None = None
    enumerated = points = 0
    settled = chain(
        (("in_bounds", settle(access)) for access in distinct(walk.open)),
        (("races", settle_meeting(meeting)) for meeting in meetings(walk)),
    )
    for law, found in settled:
        match found:
            case Counterexample(sentence=sentence):
                return Refuted(law, sentence)
            case Open(sentence=sentence):
                doubt = doubt or Unproven(law, sentence)
            case Shown(points=some):
                enumerated += some > 0
                points += some
    return doubt or Proven(walk.proven + len(walk.open), enumerated, points)


def distinct(accesses: list[Access]) -> list[Access]:
    """The accesses without those that touch the same element in the same place."""
    return list({(id(a.index), id(a.scope), a.buffer.size): a for a in accesses}.values())


def require_lowered(func: object) -> None:
    """Raise LowerError for what is no lowered program."""
    law = "a lowered program is needed, such as te.lower(schedule, args) gives"
    require(isinstance(func, LoweredFunc), LowerError, "build", law, got=func)


def verify(func: LoweredFunc, outputs: Collection[Buffer] = ()) -> None:
    """Raise UnsafeError, one sentence, unless the program is proven; one that was is not looked at again.

    Raises LowerError for what is no lowered program.

    `outputs` are arguments that hold nothing when the program begins; the others may be read and written.
    """
    require_lowered(func)
    if func in _SAFE:
        return
    match verdict(func, outputs):
        case Refuted(law=law, sentence=sentence):
            raise UnsafeError(f"{func.name}: {law}: {sentence}", law)
        case Unproven(law=law, sentence=sentence):
            raise UnsafeError(f"{func.name}: unproven: {sentence}", law)
    _SAFE.add(func)
