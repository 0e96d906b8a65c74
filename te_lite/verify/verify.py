"""Is a lowered program right in form and inside of its buffers?  Proven, refuted or neither: only the proven is built.

`verdict` looks at a program: one walk finds breaches of the rules of its form (`verify_walk.py` lists them) and the
accesses that are not in bounds at first sight; these are settled one by one (`verify_access.py`).  Then come the loops
whose iterations run at once.  `verify` refuses what is not proven.  It reads the lowered program only, and shares no
argument with the code that made it.

Of a block or parallel loop, and a buffer that lives outside of it and is written and read in its body: no iteration
may read an element that another one writes.  Elements that several write and none of the others reads are no race: what
is computed again is the same value.  Of a thread loop: no iteration may read or write an element that another one
writes, unless a barrier stands between the two on every way (`verify_phases.py`).  Two arguments, cheapest first:

    digits      an equal index shows an equal iteration (`verify_digits.py`)
    points      all points of the loops that the indices and their conditions depend on (`verify_clash.py`)
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from itertools import chain

from ..errors import LowerError, UnsafeError, require
from ..expr.expr import Var
from ..expr.visit import free_vars
from ..loops.stmt import Buffer, For, ForKind, LoweredFunc
from ..loops.stmt_text import head_text
from .verify_access import Counterexample, Open, Shown, settle
from .verify_clash import MOST_POINTS, Apart, Clash, Pair, Unknown, at_points
from .verify_digits import iterations_equal
from .verify_phases import Phases
from .verify_scope import Access
from .verify_walk import Walk

# ---------------------------------------------------------------------------------------------------------------- races


@dataclass(frozen=True)
class Meeting:
    """A loop whose iterations run at once, a buffer that lives outside of it, and pairs of a write and another access.

    Of pairs that differ in the same constant in both there is one, and none of a pair that barriers keep apart.
    """

    loop: For
    buffer: Buffer
    pairs: tuple[Pair, ...]


@dataclass(frozen=True, eq=False)
class _Class:
    """Accesses of the same elements: one of them, its number, its constant, and the statements of all.

    Those of one number have the same index but for its constant, the same conditions, and the same boxes of the
    variables that these depend on.
    """

    access: Access
    number: int
    constant: int
    statements: set[int] = field(default_factory=set)


def meetings(walk: Walk) -> Iterator[Meeting]:
    """Where iterations could touch what others write."""
    for buffer in dict.fromkeys(x.buffer for x in walk.written):
        reads = [x for x in walk.read if x.buffer is buffer]
        writes = [x for x in walk.written if x.buffer is buffer]
        for loop in dict.fromkeys(t.loop for x in writes for t in x.scope.concurrent if buffer in t.outside):
            others = reads + writes if loop.kind is ForKind.THREAD else reads
            inside = [[x for x in some if loop in x.scope.loops] for some in (writes, others)]
            if inside[1]:
                yield Meeting(loop, buffer, tuple(_pairs(loop, *inside)))


def _pairs(loop: For, writes: list[Access], others: list[Access]) -> Iterator[Pair]:
    """A write and another access of each class, and of each difference of their constants."""
    numbers: dict[object, int] = {}
    some, more = [_classes(x, numbers) for x in (writes, others)]
    threads = loop.kind is ForKind.THREAD
    phases = Phases(loop.body, {id(x.statement) for x in writes + others}) if threads else None
    seen: set[object] = set()
    for a, b in itertools.product(some, more):
        same = frozenset[Var]() if phases is None else phases.meet(a.statements, b.statements)
        key = a.number, b.number, a.constant - b.constant, same
        if same is not None and key not in seen:
            seen.add(key)
            yield Pair(a.access, b.access, same)


def _classes(accesses: list[Access], numbers: dict[object, int]) -> list[_Class]:
    """The accesses by the elements that they touch; `numbers` are those of indices but for their constants."""
    out: dict[tuple[int, int], _Class] = {}
    asked: dict[int, frozenset[Var]] = {}
    for x in accesses:
        terms, constant = x.forms.of(x.index)
        if id(x.scope) not in asked:
            asked[id(x.scope)] = frozenset[Var]().union(*map(free_vars, x.scope.conditions))
        used = asked[id(x.scope)].union(*[x.forms.variables(atom) for atom in terms])
        boxes = frozenset([(v, x.scope.spans.of(v)) for v in used])
        number = numbers.setdefault((frozenset(terms.items()), x.scope.conditions, boxes), len(numbers))
        out.setdefault((number, constant), _Class(x, number, constant)).statements.add(id(x.statement))
    return list(out.values())


def settle_meeting(m: Meeting) -> Shown | Counterexample | Open:
    """What is known of it."""
    points = 0
    for pair in m.pairs:
        if not _one_only(m.loop, pair) and not iterations_equal(m.loop, pair):
            match at_points(m.loop, pair, MOST_POINTS - points):
                case Clash(writer=one, other=other):
                    return _counterexample(m, pair, one, other)
                case Unknown(reason=reason):
                    return _open(m, reason)
                case Apart(points=some):
                    points += some
    return Shown(points)


def _one_only(loop: For, pair: Pair) -> bool:
    """Whether one iteration alone does both."""
    low, high = pair.write.scope.spans.of(loop.var)
    return low == high and pair.other.scope.spans.of(loop.var) == (low, low)


def _open(m: Meeting, reason: str) -> Open:
    where = f"the iterations of {m.loop.kind.value} loop {m.loop.var.name}"
    does = "read or write" if m.loop.kind is ForKind.THREAD else "read"
    return Open(f"nothing shows that {where} {does} no element of {m.buffer.name} that another one writes: {reason}")


def _counterexample(m: Meeting, pair: Pair, one: int, other: int) -> Counterexample:
    var, kind = m.loop.var.name, m.loop.kind.value
    write, touch = [head_text(x.statement) for x in pair.both]
    does = "writes" if pair.other.writes else "reads"
    return Counterexample(
        f"iteration {other} of {kind} loop {var} {does} an element of {m.buffer.name}, as in `{touch}`, that iteration "
        f"{one} writes, as in `{write}`"
    )


# ---------------------------------------------------------------------------------------------------------- the verdict


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

PROVEN: weakref.WeakSet[LoweredFunc] = weakref.WeakSet()
"""Programs that need no look any more."""


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
    if func in PROVEN:
        return
    match verdict(func, outputs):
        case Refuted(law=law, sentence=sentence):
            raise UnsafeError(f"{func.name}: {law}: {sentence}", law)
        case Unproven(law=law, sentence=sentence):
            raise UnsafeError(f"{func.name}: unproven: {sentence}", law)
    PROVEN.add(func)
