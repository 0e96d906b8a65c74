"""Print a state as a loop nest; the text also identifies a program in the search.

A loop prints where it starts and how far it runs.  Inferred bounds let axes start anywhere: `for i2 (x % 4 * 14,15)`
counts from a place that the loops around its stage decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..expr.lanes import product
from ..expr.storage import storage_class
from ..schedule.loop_value import loop_names
from ..schedule.region import DivAtom, Linear, LoopAtom
from ..schedule.state import INLINED, ROOT, FuseRel, Iter, Stage, State


def state_text(state: State) -> str:
    """Loops of extent 1 are left out; inlined stages are not printed."""
    names = ", ".join(s.op.name for s in state.stages if s.is_placeholder)
    lines = [f"Placeholder: {names}"]
    starts, attached = _Starts(state), _attached(state)
    for k, stage in enumerate(state.stages):
        if not stage.is_placeholder and stage.where == ROOT:
            _stage_lines(starts, attached, k, 0, lines)
    return "\n".join(lines) + "\n"


def _attached(state: State) -> set[tuple[int, int]]:
    """The loops, as stage and number, that stages are computed at."""
    return {(s.attach.stage, s.attach.iter) for s in state.stages if s.attach is not None}


def _stage_lines(starts: _Starts, attached: set[tuple[int, int]], k: int, indent: int, lines: list[str]) -> None:
    stage = starts.state.stages[k]
    if stage.where == INLINED:
        return
    lines += [f"{'  ' * indent}{stage.op.name} {mark}" for mark in marks_of(stage)]
    for it in stage.iters:
        if not (isinstance(it.extent, int) and it.extent == 1):
            word = "for" if it.annotation == "none" else it.annotation
            lines.append(f"{'  ' * indent}{word} {it.name} {_range(starts, it)}")
            indent += 1
        for child in starts.state.attached_to(k, it.uid) if (k, it.uid) in attached else ():
            _stage_lines(starts, attached, child, indent, lines)
    lines.append(f"{'  ' * indent}{stage.op.name} = ...")


def marks_of(stage: Stage) -> Iterable[str]:
    """What is asked of a stage besides its loops."""
    if stage.auto_unroll_max_step:
        yield f"auto_unroll: {stage.auto_unroll_max_step}"
    if stage.storage_align is not None and stage.storage_align[2]:
        yield f"storage_offset: {stage.storage_align[2]}"
    if stage.storage_order is not None:
        yield f"storage_order: {' '.join(map(str, stage.storage_order))}"
    if storage_class(stage.compute.scope) == "fragment":
        yield f"scope: {stage.compute.scope}"
    yield from [ask.text for ask in stage.asks]


def _range(starts: _Starts, it: Iter) -> str:
    if it.extent is None:
        return "(None)"
    start = "0" if it.start is None else starts.line(it.start)
    return f"({start},{it.extent})"


@dataclass(frozen=True)
class _Term:
    """`index % upper // lower * scale`; without an upper factor there is no remainder to take."""

    index: str
    lower: int
    upper: int | None
    scale: int

    def text(self) -> str:
        factor = abs(self.scale)
        words = [self.index]
        words += [] if self.upper is None else [f"% {self.upper}"]
        words += [] if self.lower == 1 else [f"// {self.lower}"]
        words += [] if factor == 1 else [f"* {factor}"]
        return " ".join(words)


class _Starts:
    """Prints starts in the normal form of TVM's simplifier: the largest factor first."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.names: dict[tuple[int, int], str] = {}
        self._loops: dict[int, dict[int, str]] = {}

    def line(self, low: Linear) -> str:
        """The start of one loop; names are unique within it."""
        self.names = {}
        return self.text(low)

    def text(self, low: Linear) -> str:
        terms = sorted(_merged(self._terms(low)), key=lambda t: (-t.scale, -t.lower, -_order(t.upper)))
        words = "".join(f" + {t.text()}" for t in terms if t.scale > 0)
        words += f" + {low.const}" if low.const > 0 else ""
        words += "".join(f" - {t.text()}" for t in reversed(terms) if t.scale < 0)
        words += f" - {-low.const}" if low.const < 0 else ""
        return words.removeprefix(" + ") if words.startswith(" + ") else f"0{words}" if words else "0"

    def _terms(self, low: Linear) -> Iterable[_Term]:
        for atom, scale in low.terms.items():
            if scale == 0 or (atom.extent == 1 and _begins_at_zero(atom)):
                continue
            yield self._quotient(atom, scale) if isinstance(atom, DivAtom) else self._loop(atom, scale)

    def _quotient(self, atom: DivAtom, scale: int) -> _Term:
        base = self.text(atom.base)
        index = base if base.isidentifier() else f"({base})"
        return _Term(index, 1, atom.divisor, scale) if atom.mod else _Term(index, atom.divisor, None, scale)

    def _loop(self, atom: LoopAtom, scale: int) -> _Term:
        """The value of an iterator: of the loop itself, or of its part of the loop that it was fused into.

        TVM knows how far threads run but not other fused loops: only of threads it leaves out a remainder that is
        the whole.
        """
        stage = self.state.stages[atom.stage]
        uid, lower = atom.uid, 1
        upper: Any = None
        for rel in stage.relations:
            if isinstance(rel, FuseRel) and uid in rel.parts:
                at = rel.parts.index(uid)
                inner = product([stage.vars[p].extent for p in rel.parts[at + 1 :]])
                upper = upper if upper is not None or at == 0 else stage.vars[uid].extent
                lower, upper = lower * inner, None if upper is None else upper * inner
                uid = rel.fused
        loop: Any = stage.vars[uid]
        whole = _is_thread(loop) and upper is not None and upper >= loop.extent
        return _Term(self._name(atom.stage, uid), lower, None if whole else upper, scale)

    def _name(self, k: int, uid: int) -> str:
        """The variable of a loop, as TVM's script prints it: one name each within an expression."""
        if (k, uid) not in self.names:
            stage = self.state.stages[k]
            loop = stage.vars[uid]
            if k not in self._loops:
                self._loops[k] = loop_names(stage)
            base = (loop.annotation if _is_thread(loop) else self._loops[k][uid]).replace(".", "_")
            name, n = base, 0
            while name in self.names.values():
                n += 1
                name = f"{base}_{n}"
            self.names[k, uid] = name
        return self.names[k, uid]


def _is_thread(loop: Iter) -> bool:
    return "Idx." in loop.annotation or loop.annotation == "vthread"


def _order(upper: int | None) -> int:
    return 2**63 if upper is None else upper


def _begins_at_zero(atom: Any) -> bool:
    return isinstance(atom, LoopAtom) or atom.low == 0


def _merged(terms: Iterable[_Term]) -> list[_Term]:
    """`x // 4 * 8 + x % 4 * 2` is `x * 2`: neighbouring digits of one index joined."""
    out: list[_Term] = []
    for term in terms:
        for at, high in enumerate(out):
            joins = high.index == term.index and high.lower == term.upper
            if joins and high.scale * term.lower == term.scale * high.lower:
                out[at] = replace(term, upper=high.upper)
                break
        else:
            out.append(term)
    return out
