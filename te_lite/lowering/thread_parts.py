"""Arrays that threads share out: each keeps only its own part.

A stage in local storage whose loops are bound to threads (`loop_scope.shared_out`) has a private array of the whole
region, of which a thread touches what it computes.  With T threads, c neighbouring elements at a time,

    index = P*q + c*thread + r      P = c*T, 0 <= r < c        every access of the array, with the same c

and as the thread is the same in all that one thread does, c*q + r tells its elements apart as well:

    A[q*128 + threadIdx.x*4 + r] in 0..256     becomes     A[q*4 + r] in 0..8

An access of another form may read what another thread computed, so it is refused; so are kernels with more threads.

Fragments are stored like that for the 32 lanes of a warp, and become local arrays.  The operands of an instruction of
tensor cores begin with an element of lane 0, whose place is that of each lane's own element.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..bounds.loop_scope import LANES, WARP, shared_out
from ..errors import LowerError, require
from ..expr.expr import BufferLoad, Const, Expr, Var, as_expr, binary
from ..expr.lanes import ceildiv
from ..expr.simplify import Simplifier
from ..expr.storage import storage_class
from ..expr.visit import substitute, transform, walk
from ..loops.stmt import Alloc, Buffer, Instruction, Stmt, Store, bodies, exprs_of, map_exprs, stmts_of, with_bodies
from ..schedule.state import Stage
from .lower_facts import Facts


def keep_own_parts(facts: Facts, k: int, nest: Stmt) -> Stmt:
    """The nest of root stage k, in which the threads keep their parts of what they share out.

    Raises LowerError when a thread might touch what another one keeps.
    """
    for c, stage in enumerate(facts.stages):
        if facts.roots[c] != k:
            continue
        for buffer in facts.own_buffers(c):
            for tag, count in _sharers(stage, facts.bounds.scopes[c]).items():
                every = facts.thread_extents[k].get(tag, 1)
                law = "all threads of the kernel must share it out"
                require(count == every, LowerError, buffer.name, law, axis=tag, threads=every, needed=count)
                nest, buffer = _Parts(nest, buffer, facts.thread_vars[k, tag], every, facts.simplifier).kept()
    return nest


def _sharers(stage: Stage, scope: str) -> dict[str, int]:
    """The thread axes along which a stage is shared out, and among how many."""
    if storage_class(scope) == "fragment":
        return {WARP: LANES}
    tags = shared_out(stage, scope)
    return {it.annotation: it.length for it in stage.iters if it.annotation in tags}


@dataclass(frozen=True)
class _Parts:
    """The accesses of `buffer` in a nest, and the variable of the `count` threads that share it out."""

    nest: Stmt
    buffer: Buffer
    thread: Var
    count: int
    simplifier: Simplifier

    def kept(self) -> tuple[Stmt, Buffer]:
        """The nest with a smaller buffer, and this."""
        if self.count == 1:
            return self.nest, self.buffer
        steps = {self._step(index) for index in self._indices()}
        step = steps.pop() if steps else 1
        self._require(not steps and step > 0)
        size = ceildiv(self.buffer.size, step * self.count) * step
        small = replace(self.buffer, shape=(size,), strides=None, scope="local")
        return self._moved(self.nest, small, step), small

    def _require(self, ok: bool) -> None:
        law = "a thread may only read what it computed itself"
        require(ok, LowerError, self.buffer.name, law, threads=self.thread.name)

    def _indices(self) -> Iterator[Expr]:
        for s in stmts_of(self.nest):
            if isinstance(s, Instruction):
                continue
            if isinstance(s, Store) and s.buffer is self.buffer:
                yield s.index
            for e in exprs_of(s):
                yield from (x.index for x in walk(e) if isinstance(x, BufferLoad) and x.buffer is self.buffer)

    def _at(self, index: Expr, thread: int) -> Expr:
        return self.simplifier.simplify(substitute(index, {self.thread: as_expr(thread)}))

    def _step(self, index: Expr) -> int:
        """How far an index moves from one thread to the next; 0 when that is not the same for all."""
        step = self.simplifier.simplify(binary("-", self._at(index, 1), self._at(index, 0)))
        if not isinstance(step, Const):
            return 0
        back = binary("-", index, binary("+", self._at(index, 0), binary("*", self.thread, step)))
        rest = self.simplifier.simplify(back)
        return int(step.value) if isinstance(rest, Const) and rest.value == 0 else 0

    def _own(self, index: Expr, step: int) -> Expr:
        """The place in the part of a thread that an index means."""
        first, period = self._at(index, 0), step * self.count
        rest = self.simplifier.simplify(binary("%", first, period))
        low, high = self.simplifier.bounds(rest)
        self._require(low is not None and high is not None and low >= 0 and high < step)
        return self.simplifier.simplify(binary("+", binary("*", binary("//", first, period), step), rest))

    def _moved(self, s: Stmt, small: Buffer, step: int) -> Stmt:
        def swap(e: Expr) -> Expr | None:
            if isinstance(e, BufferLoad) and e.buffer is self.buffer:
                return BufferLoad(small, self._own(e.index, step))
            return None

        def visit(s: Stmt) -> Stmt:
            match s:
                case Store(buffer=buffer, index=index, value=value) if buffer is self.buffer:
                    return Store(small, self._own(index, step), value)
                case Alloc(buffer=buffer, body=body) if buffer is self.buffer:
                    return Alloc(small, visit(body))
            return with_bodies(s, tuple([visit(b) for b in bodies(s)]))

        return map_exprs(visit(s), lambda e: transform(e, swap))
