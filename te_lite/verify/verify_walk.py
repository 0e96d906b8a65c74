"""One walk over a lowered program: what is wrong with its form, and which accesses are not in bounds at first sight.

Laws, by the names under which a breach is reported:

    variables   defined once on a path, by a loop with a positive extent, around all their uses
    buffers     an argument, or allocated once, around all their uses
    scopes      arguments are global; shared memory exists in kernels only
    lowered     no tensor-level node is left
    dtypes      stores have the dtype of their buffer, indices are integers, conditions are bool
    kernels     block and thread loops are the outermost nest, blocks before threads, one loop an axis
    meetings    barriers and thread reductions are in kernels; a reduction names a thread loop and fits it;
                instructions of tensor cores are in kernels of whole warps, and all lanes of a warp come to them
    vectors     a vectorized loop is innermost and has no barrier
    written     a buffer that holds nothing yet, allocated or an output, is read only after a store to it

Two more, `in_bounds` and `races`, are settled from the accesses that it collects.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ..bounds.loop_scope import LANES, WARP
from ..expr.expr import FLOATS, Binary, BufferLoad, Compare, Const, Expr, Load, Reduce, SizeVar, Var, binary
from ..expr.storage import SCOPES, is_scope
from ..loops.stmt import (
    Alloc,
    Barrier,
    Buffer,
    For,
    ForKind,
    If,
    Instruction,
    LoweredFunc,
    Seq,
    Stmt,
    Store,
    ThreadReduce,
)
from ..loops.stmt_text import head_text, pretty
from .verify_form import Forms
from .verify_scope import Access, Finding, Scope, parts
from .verify_span import Spans

TAGS = {
    ForKind.BLOCK: ("blockIdx.x", "blockIdx.y", "blockIdx.z"),
    ForKind.THREAD: ("threadIdx.x", "threadIdx.y", "threadIdx.z"),
}
LAWS = (
    "variables", "buffers", "scopes", "lowered", "dtypes", "kernels", "meetings", "vectors", "written", "in_bounds",
    "races",
)  # fmt: skip


class Walk:
    """The findings of a program, how many accesses are in bounds at first sight, and the others.

    `written` and `read` are the accesses of what lives outside of a loop whose iterations run at once.  Buffers are
    `unwritten` until a statement stores to them: `outputs`, and what the program allocates.
    """

    def __init__(self, func: LoweredFunc, outputs: Collection[Buffer] = ()) -> None:
        self.findings: list[Finding] = []
        self.proven = 0
        self.open: list[Access] = []
        self.written: list[Access] = []
        self.read: list[Access] = []
        self.unwritten = set(outputs)
        self.forms = Forms()
        for k, b in enumerate(func.args):
            if b in func.args[:k]:
                self.find("buffers", f"the buffer {b.name} is two arguments")
            if b.scope != "global":
                self.find("scopes", f"the argument {b.name} must be global, got scope={b.scope!r}")
        self.stmt(func.body, Scope(Spans({v: v.range for v in func.sizes}), frozenset(func.args)))

    def find(self, law: str, sentence: str) -> None:
        self.findings.append(Finding(law, sentence))

    # ---------------------------------------------------------------------------------------------- statements

    def stmt(self, s: Stmt, scope: Scope) -> None:
        match s:
            case Seq(stmts=stmts):
                inner = _strange(s, scope) if scope.kernel else scope
                for x in stmts:
                    self.stmt(x, inner)
            case Store():
                self.store(s, scope)
            case For():
                self.loop(s, scope)
            case Alloc(body=body):
                self.alloc(s, scope)
                self.stmt(body, replace(scope, buffers=scope.buffers | {s.buffer}, seen=set()))
            case If(cond=cond, then=then):
                self.expr(cond, scope, s)
                if cond.dtype != "bool":
                    self.find("dtypes", f"the condition `{pretty(cond)}` is {cond.dtype}, not bool")
                self.stmt(then, _strange(s, scope.where(cond)))
            case Barrier() | ThreadReduce():
                self.meeting(s, scope)
            case Instruction() if s.by_emitters:
                self.find("scopes", f"`{head_text(s)}` is for emitters alone")
            case Instruction():
                self.meeting(s, scope)
                self.together(s, scope)

    def store(self, s: Store, scope: Scope) -> None:
        if s.value.dtype != s.buffer.dtype:
            self.find("dtypes", f"`{head_text(s)}` stores {s.value.dtype} to a buffer of {s.buffer.dtype}")
        self.access(s.buffer, s.index, scope, s, writes=True)
        self.expr(s.index, scope, s)
        self.expr(s.value, scope, s)
        self.unwritten.discard(s.buffer)

    def alloc(self, s: Alloc, scope: Scope) -> None:
        b = s.buffer
        if b in scope.buffers:
            self.find("buffers", f"the buffer {b.name} is allocated twice")
        if not is_scope(b.scope):
            self.find("scopes", f"the scope of {b.name} must be one of {', '.join(SCOPES)}, got scope={b.scope!r}")
        if b.storage == "shared" and not scope.kernel:
            self.find("scopes", f"the shared buffer {b.name} is allocated outside of a kernel")
        self.unwritten.add(b)

    def loop(self, s: For, scope: Scope) -> None:
        if s.var in scope.spans.boxes:
            self.find("variables", f"the variable {s.var.name} is bound by two nested loops")
        if not isinstance(s.extent, int) or s.extent < 1:
            law = f"the extent of loop {s.var.name} must be a positive integer, got extent={s.extent!r}"
            self.find("variables", law)
            return
        if scope.vector is not None:
            self.find("vectors", f"the vectorized loop {scope.vector.var.name} contains `{head_text(s)}`")
        inner = scope.within(s)
        if s.kind in TAGS:
            self.kernel_loop(s, scope)
            inner = replace(inner, kernel=(*scope.kernel, s), odd=None)
        else:
            self.plain_loop(s, scope)
            inner = _strange(s, inner)
            if s.kind is ForKind.VECTORIZED:
                inner = replace(inner, vector=s)
        self.stmt(s.body, inner)

    def plain_loop(self, s: For, scope: Scope) -> None:
        if s.tag:
            self.find("kernels", f"loop {s.var.name} is {s.kind.value}, and has the tag {s.tag}")
        if s.kind is ForKind.PARALLEL and scope.kernel:
            self.find("kernels", f"the parallel loop {s.var.name} is inside a kernel")

    def kernel_loop(self, s: For, scope: Scope) -> None:
        name = s.tag or s.var.name
        if s.tag not in TAGS[s.kind]:
            law = f"the tag of {s.kind.value} loop {s.var.name} must be one of {', '.join(TAGS[s.kind])}, got {s.tag!r}"
            self.find("kernels", law)
        if any(x.tag == s.tag for x in scope.kernel):
            self.find("kernels", f"{name} is bound twice in one kernel")
        if s.kind is ForKind.BLOCK and any(x.kind is ForKind.THREAD for x in scope.kernel):
            self.find("kernels", f"{name} is inside a thread loop")
        if scope.odd is not None:
            self.find("kernels", f"{name} is inside `{head_text(scope.odd)}`, a kernel's loops must be outermost")

    def together(self, s: Instruction, scope: Scope) -> None:
        """An instruction that a warp executes: accesses of registers and rows."""
        self.findings += s.breaches(scope)
        for touch in s.touches():
            for index in (touch.first.index, binary("+", touch.first.index, touch.extent - 1)):
                self.access(touch.first.buffer, index, scope, s, touch.writes)
                self.expr(index, scope, s)
            if touch.writes:
                self.unwritten.discard(touch.first.buffer)

    def meeting(self, s: Barrier | ThreadReduce | Instruction, scope: Scope) -> None:
        if not scope.kernel:
            self.find("meetings", f"`{head_text(s)}` is outside of a kernel")
        if scope.vector is not None:
            self.find("vectors", f"the vectorized loop {scope.vector.var.name} contains `{head_text(s)}`")
        if isinstance(s, ThreadReduce):
            self.reduction(s, scope)

    def reduction(self, s: ThreadReduce, scope: Scope) -> None:
        text = head_text(s)
        self.expr(s.thread, scope, s)
        for b in s.dst:
            self.known(b, scope, s)
        for e in s.src:
            self.expr(e, scope, s)
        self.unwritten.difference_update(s.dst)
        loops = [x for x in scope.loops if x.var is s.thread]
        if not loops or loops[0].kind is not ForKind.THREAD:
            self.find("meetings", f"{s.thread.name} of `{text}` is not the variable of a thread loop")
        elif not 1 <= s.extent <= loops[0].extent:
            self.find("meetings", f"`{text}` needs between 1 and {loops[0].extent} threads, got extent={s.extent}")
        elif s.lanes and (loops[0].tag != WARP or s.extent != LANES or LANES % s.lanes):
            self.find("meetings", f"`{text}` needs groups that divide the {LANES} lanes of a warp, got lanes={s.lanes}")
        if not len(s.dst) == len(s.src) == len(s.combiner.result):
            counts = f"got {len(s.dst)} and {len(s.src)}"
            self.find("meetings", f"`{text}` needs {len(s.combiner.result)} results and sources, {counts}")
        for b, e in zip(s.dst, s.src, strict=False):
            if b.storage != "local" or b.size != 1 or b.dtype != e.dtype:
                self.find("meetings", f"the result of `{text}` needs a local buffer of one {e.dtype}, got {b!r}")

    # --------------------------------------------------------------------------------------------- expressions

    def expr(self, e: Expr, scope: Scope, s: Stmt) -> None:
        """Look at every node of `e`, once in a scope."""
        if isinstance(e, Const):
            if e.dtype == "int64" and not -(1 << 63) <= e.value < 1 << 63:
                self.find("dtypes", f"the constant {e.value} in `{head_text(s)}` does not fit int64")
            return
        if id(e) in scope.seen:
            return
        scope.seen.add(id(e))
        if isinstance(e, Var):
            if e not in scope.spans.boxes:
                law = "is the extent of no argument" if isinstance(e, SizeVar) else "is bound by no loop around it"
                self.find("variables", f"the variable {pretty(e)} of `{head_text(s)}` {law}")
        elif isinstance(e, Binary) or isinstance(e, Compare):  # noqa: SIM101  (a tuple or union takes twice as long)
            self.expr(e.a, scope, s)
            self.expr(e.b, scope, s)
        else:
            self.branching(e, scope, s)

    def branching(self, e: Expr, scope: Scope, s: Stmt) -> None:
        match e:
            case BufferLoad(buffer=buffer, index=index):
                self.access(buffer, index, scope, s, writes=False)
                self.expr(index, scope, s)
            case Load() | Reduce():
                self.find("lowered", f"`{pretty(e)}` is not lowered")
            case _:
                for x, inner in parts(e, scope):
                    self.expr(x, inner, s)

    # ------------------------------------------------------------------------------------------------ accesses

    def known(self, buffer: Buffer, scope: Scope, s: Stmt) -> None:
        if buffer not in scope.buffers:
            text = f"the buffer {buffer.name} of `{head_text(s)}` is neither argument nor allocated around it"
            self.find("buffers", text)

    def used(self, buffer: Buffer, s: Stmt) -> None:
        if buffer in self.unwritten:
            self.find("written", f"`{head_text(s)}` reads {buffer.name}, to which no statement before it stores")

    def access(self, buffer: Buffer, index: Expr, scope: Scope, s: Stmt, writes: bool) -> None:
        self.known(buffer, scope, s)
        if index.dtype == "bool" or index.dtype in FLOATS:
            self.find("dtypes", f"the index `{pretty(index)}` of {buffer.name} is {index.dtype}, not an integer")
            return
        found = Access(s, buffer, index, scope, self.forms, writes)
        if not (writes or scope.never):
            self.used(buffer, s)
        if scope.concurrent and buffer in scope.concurrent[-1].outside and not scope.never:
            (self.written if writes else self.read).append(found)
        low, high = scope.spans.of(index)
        if scope.never or (low >= 0 and high < buffer.size):
            self.proven += 1
        else:
            self.open.append(found)


def _strange(s: Stmt, scope: Scope) -> Scope:
    """The inside of a statement that no loop of a kernel may stand in."""
    return scope if scope.odd is not None else replace(scope, odd=s)
