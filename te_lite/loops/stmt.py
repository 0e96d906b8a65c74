"""Loop-nest statements: what a schedule is lowered to.

    stmt  = For(var, extent, kind, body)     kind in ForKind; `step` 1, start 0
          | Store(buffer, index, value)      one element (a vector inside a VECTORIZED loop)
          | Alloc(buffer, body)              storage that lives as long as `body` runs
          | If(cond, then)
          | Seq(stmts)
          | Barrier()                        all threads of a block meet; shared memory becomes visible
          | ThreadReduce(combiner, dst, src, thread, extent)
                                             dst[k] := fold of src[k] over the threads along `thread`;
                                             every thread gets the result; implies a barrier
          | Instruction                      what threads execute together, of several kinds, which extensions bring
    func  = LoweredFunc(name, args, body)

A kernel is a nest of BLOCK and THREAD loops: all its blocks and threads run the same body.  Inside a kernel,
`shared` buffers exist once a block and `local` ones once a thread; `global` buffers exist once.
Indices count elements of flat buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar, NamedTuple

from ..expr.element import Buffer, BufferLoad
from ..expr.expr import Combiner, Const, Expr, SizeVar, Var
from ..hooks import Hook

__all__ = [
    "FUNC_TEXT", "Alloc", "Barrier", "Buffer", "For", "ForKind", "If", "Instruction", "LoweredFunc", "Operation", "Seq",
    "Stmt", "Store", "ThreadReduce", "Touch", "allocated", "bodies", "exprs_of", "map_exprs", "seq", "stmts_of",
    "stored_in", "with_bodies", "written_by",
]  # fmt: skip


class ForKind(Enum):
    """How the iterations of a loop run."""

    SERIAL = "for"
    PARALLEL = "parallel"
    VECTORIZED = "vectorized"
    UNROLLED = "unrolled"
    VTHREAD = "vthread"
    TENSORIZED = "tensorized"
    BLOCK = "block"
    THREAD = "thread"


@dataclass(frozen=True, slots=True, eq=False)
class For:
    """`kind` BLOCK and THREAD carry their axis in `tag` (`blockIdx.x`, `threadIdx.x`, ...).

    A TENSORIZED loop is, with all inside, one instruction of an accelerator; only nests for those have it.
    `limit` is the `auto_unroll_max_step` of its stage: statements that it may become by unrolling; 0 says none.
    """

    var: Var
    extent: int
    kind: ForKind
    body: Stmt
    tag: str = ""
    limit: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Store:
    """`buffer[index] = value`."""

    buffer: Buffer
    index: Expr
    value: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Alloc:
    """A buffer that lives as long as `body` runs."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class If:
    """`then`, where `cond` holds."""

    cond: Expr
    then: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Seq:
    """Statements, one after the other."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Barrier:
    """`publishes`: copies into pipelined buffers, which may be asynchronous, are complete when it opens.

    It closes a group of copies, and the last `left` groups may be incomplete.  `warp`: only the threads of a warp meet,
    all of which come; only emitters write it.
    """

    publishes: bool = False
    left: int = 0
    warp: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class ThreadReduce:
    """`dst` are local buffers of one element, `src` expressions; `thread` is the variable of a THREAD loop.

    Only threads with `thread < extent` contribute, all receive the result.  With `lanes`, every group of so many
    neighbours in a warp has a result of its own.
    """

    combiner: Combiner
    dst: tuple[Buffer, ...]
    src: tuple[Expr, ...]
    thread: Var
    extent: int
    lanes: int = 0


class Touch(NamedTuple):
    """What a thread reads, or `writes`, of memory for an instruction: `extent` elements from `first` on, of a dtype."""

    first: BufferLoad
    extent: int
    dtype: str
    writes: bool = False
    storage: str = "local"


class Operation(NamedTuple):
    """`execute` takes an array [..., lanes, elements] for each of `reads`, and gives one for `writes`."""

    reads: tuple[tuple[BufferLoad, ...], ...]
    writes: tuple[BufferLoad, ...]
    execute: Callable[..., Any]


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """A statement that all threads of a warp, or a block, execute together; each kind is a class of an extension.

    operands     the fields that are places in memory, or None
    results      those that are written
    by_emitters  only emitters write it: the language gives it no meaning
    """

    operands: ClassVar[tuple[str, ...]]
    results: ClassVar[tuple[str, ...]]
    by_emitters: ClassVar[bool] = False

    def text(self, shown: Callable[[Expr], str]) -> str:
        """Its line in the text of a program, where `shown` gives the text of an expression."""
        raise NotImplementedError

    def touches(self) -> list[Touch]:
        """What each thread reads and writes, reads first."""
        raise NotImplementedError

    def operation(self) -> Operation:
        """What the lanes of a warp read, compute and write."""
        raise NotImplementedError

    def breaches(self, scope: Any) -> Iterable[Any]:
        """What the verifier finds wrong with it, where it stands in the `scope` of one (`verify_scope.py`)."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Of a load of matrices: the first so many threads of a warp give the address of 16 bytes each."""
        return 0

    @property
    def waited_for(self) -> bool:
        """Whether it only begins what is waited for."""
        return False

    @property
    def goes_on(self) -> bool:
        """Whether that is in the next iteration of the loop around it, and for the last one behind the loop."""
        return False

    @property
    def places(self) -> tuple[BufferLoad, ...]:
        """The operands that it has."""
        return tuple([e for name in self.operands if (e := getattr(self, name)) is not None])

    def moved(self, f: Callable[[Expr], Expr]) -> Instruction:
        """The instruction on other places; itself where `f` leaves them."""
        old = {name: getattr(self, name) for name in self.operands}
        new = {name: None if e is None else f(e) for name, e in old.items()}
        return self if all(new[name] is old[name] for name in old) else replace(self, **new)


Stmt = For | Store | Alloc | If | Seq | Barrier | ThreadReduce | Instruction


@dataclass(frozen=True, eq=False)
class LoweredFunc:
    """A program: `args` are the buffers of the tensors it was lowered for, in order, `sizes` what is open of them."""

    name: str
    args: tuple[Buffer, ...]
    body: Stmt
    sizes: tuple[SizeVar, ...] = ()

    def __str__(self) -> str:
        return FUNC_TEXT(self)


FUNC_TEXT: Hook[[LoweredFunc], str] = Hook("the text of a program")


def seq(*stmts: Stmt) -> Stmt:
    """A flat sequence; a single statement stands for itself."""
    flat: list[Stmt] = []
    for s in stmts:
        flat.extend(s.stmts if isinstance(s, Seq) else (s,))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def allocated(buffers: Sequence[Buffer], body: Stmt) -> Stmt:
    """`body` with storage for `buffers`, the first one outermost."""
    for buffer in reversed(buffers):
        body = Alloc(buffer, body)
    return body


def bodies(s: Stmt) -> tuple[Stmt, ...]:
    """The direct sub-statements."""
    match s:
        case Store():
            return ()
        case For(body=body) | Alloc(body=body):
            return (body,)
        case If(then=then):
            return (then,)
        case Seq(stmts=stmts):
            return stmts
        case Barrier() | ThreadReduce() | Instruction():
            return ()


def with_bodies(s: Stmt, new: tuple[Stmt, ...]) -> Stmt:
    """`s` with its sub-statements replaced; `s` itself when they are the same objects."""
    if all(x is y for x, y in zip(bodies(s), new, strict=True)):
        return s
    match s:
        case For() | Alloc():
            return replace(s, body=new[0])
        case If():
            return If(s.cond, new[0])
        case _:
            return seq(*new)


def stmts_of(s: Stmt) -> Iterator[Stmt]:
    """Every statement under `s`, itself first."""
    stack = [s]
    while stack:
        node = stack.pop()
        yield node
        inner = bodies(node)
        if inner:
            stack.extend(inner[::-1])


def flattened(s: Stmt, held: list[Buffer], taken: Callable[[Buffer], bool] = lambda buffer: True) -> Iterator[Stmt]:
    """The statements of sequences in sequences, in order; `held` gets allocations around them that are `taken`."""
    match s:
        case Alloc(buffer=buffer, body=body) if taken(buffer):
            held.append(buffer)
            yield from flattened(body, held, taken)
        case Seq(stmts=stmts):
            for x in stmts:
                yield from flattened(x, held, taken)
        case _:
            yield s


def written_by(s: Stmt) -> tuple[Buffer, ...]:
    """The buffers that the statement itself, without those inside of it, writes."""
    match s:
        case Store(buffer=buffer):
            return (buffer,)
        case ThreadReduce(dst=dst):
            return dst
        case Instruction():
            return tuple([getattr(s, name).buffer for name in s.results])
    return ()


def stored_in(s: Stmt) -> frozenset[Buffer]:
    """The buffers that statements under `s` write, itself too."""
    return frozenset([b for x in stmts_of(s) for b in written_by(x)])


def exprs_of(s: Stmt) -> tuple[Expr, ...]:
    """The expressions that stand directly in `s`."""
    match s:
        case Store(index=index, value=value):
            return (index, value)
        case If(cond=cond):
            return (cond,)
        case ThreadReduce(src=src):
            return src
        case Instruction():
            return s.places
        case _:
            return ()


def map_exprs(s: Stmt, f: Callable[[Expr], Expr]) -> Stmt:
    """Apply `f` to every expression under `s`; a guard that then always holds is gone."""
    match s:
        case Store(buffer=buffer, index=index, value=value):
            i, v = f(index), f(value)
            return s if i is index and v is value else Store(buffer, i, v)
        case If(cond=cond, then=then):
            c, t = f(cond), map_exprs(then, f)
            if isinstance(c, Const) and c.value:
                return t
            return s if c is cond and t is then else If(c, t)
        case ThreadReduce(src=src):
            new = tuple([f(e) for e in src])
            return s if all(x is y for x, y in zip(src, new, strict=True)) else replace(s, src=new)
        case Instruction():
            return s.moved(f)
        case _:
            return with_bodies(s, tuple([map_exprs(b, f) for b in bodies(s)]))
