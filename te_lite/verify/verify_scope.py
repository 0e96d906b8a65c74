"""Where the verifier is in a program: what stands around a statement, accesses there, and breaches of laws."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ..computation.text import expr_text
from ..expr.expr import INDEX, Call, Compare, Const, Expr, Load, Logical, Var, logical_not
from ..expr.visit import children, conjuncts
from ..loops.stmt import Buffer, For, ForKind, Stmt
from ..loops.stmt_text import head_text
from .verify_form import Forms
from .verify_span import Span, Spans

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "=="}


@dataclass(frozen=True)
class Finding:
    """A breach of a law, as a sentence."""

    law: str
    sentence: str


@dataclass(frozen=True, eq=False)
class Concurrent:
    """A block, thread or parallel loop of more than one iteration, and the buffers that live outside of it."""

    loop: For
    outside: frozenset[Buffer]


@dataclass(frozen=True, eq=False)
class Scope:
    """What stands around a statement or expression.

    `conditions` hold here, as far as the boxes of `spans` do not say so already; `never` says that they cannot hold.
    `kernel` are the block and thread loops, `odd` is the first statement that a kernel must not stand in, or must not
    have between its loops.  The iterations of each of `concurrent` run at once.
    """

    spans: Spans
    buffers: frozenset[Buffer]
    loops: tuple[For, ...] = ()
    conditions: tuple[Expr, ...] = ()
    never: bool = False
    kernel: tuple[For, ...] = ()
    odd: Stmt | None = None
    vector: For | None = None
    concurrent: tuple[Concurrent, ...] = ()
    seen: set[int] = field(default_factory=set)

    def within(self, loop: For) -> Scope:
        """The body of a loop."""
        boxes = {**self.spans.boxes, loop.var: (0, loop.extent - 1)}
        together = loop.kind in (ForKind.BLOCK, ForKind.THREAD, ForKind.PARALLEL) and loop.extent > 1
        concurrent = (*self.concurrent, Concurrent(loop, self.buffers)) if together else self.concurrent
        return replace(self, spans=Spans(boxes), loops=(*self.loops, loop), concurrent=concurrent, seen=set())

    def where(self, cond: Expr) -> Scope:
        """The same place where a condition holds."""
        boxes, rest, never = dict(self.spans.boxes), list(self.conditions), self.never
        for part in conjuncts(cond):
            box = _narrowed(part, boxes)
            if isinstance(part, Const):
                never = never or not part.value
            elif box is None:
                rest.append(part)
            else:
                boxes[box[0]] = box[1]
                never = never or box[1][0] > box[1][1]
        return replace(self, spans=Spans(boxes), conditions=tuple(rest), never=never, seen=set())


def parts(e: Expr, scope: Scope) -> list[tuple[Expr, Scope]]:
    """What an expression is made of, each with what stands around it: a condition guards what it chooses."""
    match e:
        case Call(func="if_then_else", args=(cond, a, b)):
            return [(cond, scope), (a, scope.where(cond)), (b, scope.where(logical_not(cond)))]
        case Logical(op=op, a=a, b=b):
            return [(a, scope), (b, scope.where(a if op == "&&" else logical_not(a)))]
    return [(x, scope) for x in children(e)]


def _narrowed(cond: Expr, boxes: dict[Var, Span]) -> tuple[Var, Span] | None:
    """A variable and its new box, where a condition compares one with a number."""
    match cond:
        case Compare(op=op, a=Var() as v, b=Const(value=value)) if op != "!=" and v.dtype == INDEX:
            pass
        case Compare(op=op, a=Const(value=value), b=Var() as v) if op != "!=" and v.dtype == INDEX:
            op = _FLIPPED[op]
        case _:
            return None
    if v not in boxes:
        return None
    low, high = boxes[v]
    if op in ("<", "<=", "=="):
        high = min(high, int(value) - (op == "<"))
    if op in (">", ">=", "=="):
        low = max(low, int(value) + (op == ">"))
    return v, (low, high)


@dataclass(frozen=True, eq=False)
class Access:
    """An element that a statement touches, and what stands around it."""

    statement: Stmt
    buffer: Buffer
    index: Expr
    scope: Scope
    forms: Forms
    writes: bool

    @property
    def size(self) -> int:
        return self.buffer.size

    def element(self, index: object) -> str:
        """What is touched, and where: "A[16] in `B[i] = A[i + 1]`"."""
        return f"{self.buffer.name}[{index}] in `{head_text(self.statement)}`"


@dataclass(frozen=True, eq=False)
class Read:
    """One index of an element of a tensor that a computation reads, and what stands around it."""

    load: Load
    dimension: int
    scope: Scope
    forms: Forms

    @property
    def index(self) -> Expr:
        return self.load.indices[self.dimension]

    @property
    def size(self) -> int:
        return self.load.tensor.op.shape[self.dimension]

    def element(self, index: object) -> str:
        """What is read, and where: "index 4 of dimension 1 in `A[i, (j + 1)]`"."""
        return f"index {index} of dimension {self.dimension} in `{expr_text(self.load)}`"
