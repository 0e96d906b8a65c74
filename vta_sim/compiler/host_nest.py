"""A lowered nest as the host sees it: loops that the host runs, and parts that become calls of the runtime.

    vthread t in 0..2:                                 threads  t
        for i in 0..7:                                 HostLoop i
            for a in 0..10: for b in 0..58: inp[..] =      Part
            for c ..:       acc[..] = acc[..] + ..         Part

A part is a statement that stores, with the loops around it that enclose nothing else.  Virtual threads stand outside
all other loops; what each of them keeps in the memories of the accelerator is its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from te_lite.errors import require
from te_lite.expr.expr import BufferLoad, Var
from te_lite.expr.visit import walk
from te_lite.loops.perfect_nest import SEQUENTIAL, perfect_nest
from te_lite.loops.stmt import Alloc, Buffer, For, ForKind, If, Seq, Stmt, Store, bodies, exprs_of, stmts_of
from te_lite.loops.stmt_text import head_text

from ..core.errors import CompileError


@dataclass(frozen=True, eq=False)
class Part:
    """`loops` around `store`, outermost first; the loops of one tensorized instruction are `inner`.

    `path` are the variables of the host's loops around it.
    """

    loops: tuple[For, ...]
    inner: tuple[For, ...]
    store: Store
    path: tuple[Var, ...]

    @property
    def name(self) -> str:
        """What it writes, for messages."""
        return self.store.buffer.name

    @property
    def read(self) -> tuple[Buffer, ...]:
        """The buffers that are read."""
        return tuple([e.buffer for root in exprs_of(self.store) for e in walk(root) if isinstance(e, BufferLoad)])


@dataclass(frozen=True, eq=False)
class HostLoop:
    """A loop that the host runs."""

    var: Var
    extent: int
    body: tuple[Node, ...]


Node = HostLoop | Part


@dataclass(frozen=True, eq=False)
class HostNest:
    """`threads` are the virtual threads (variable, extent), outermost first; `home` maps each buffer that is kept on
    the chip to the variables of the host's loops around its allocation."""

    threads: tuple[tuple[Var, int], ...]
    body: tuple[Node, ...]
    home: dict[Buffer, tuple[Var, ...]]

    @property
    def parts(self) -> list[Part]:
        """All parts, in the order of the program."""
        return list(_parts(self.body))


def _parts(nodes: tuple[Node, ...]) -> Iterator[Part]:
    for node in nodes:
        if isinstance(node, HostLoop):
            yield from _parts(node.body)
        else:
            yield node


def host_nest(s: Stmt) -> HostNest:
    """Take a nest apart.  Raises CompileError for loops and conditions that no part of the machine runs."""
    threads, body = perfect_nest(s, lambda loop: loop.kind is ForKind.VTHREAD)
    home: dict[Buffer, tuple[Var, ...]] = {}
    return HostNest(tuple([(x.var, x.extent) for x in threads]), tuple(_nodes(body, (), home)), home)


def _nodes(s: Stmt, path: tuple[Var, ...], home: dict[Buffer, tuple[Var, ...]]) -> Iterator[Node]:
    if isinstance(s, Alloc):
        home[s.buffer] = path
    if isinstance(s, Seq | Alloc):
        for body in bodies(s):
            yield from _nodes(body, path, home)
    elif sum(isinstance(x, Store | Alloc) for x in stmts_of(s)) == 1:
        yield _part(s, path)
    else:
        _check_loop(s)
        assert isinstance(s, For)
        yield HostLoop(s.var, s.extent, tuple(_nodes(s.body, (*path, s.var), home)))


def _check_loop(s: Stmt) -> None:
    law = "a tile that runs over the edge needs a condition, which no instruction has: tiles must divide their loops"
    require(not isinstance(s, If), CompileError, head_text(s), law)
    ok = isinstance(s, For) and s.kind in (*SEQUENTIAL, ForKind.TENSORIZED)
    require(ok, CompileError, head_text(s), "virtual threads must be the outermost loops, others must be plain")


def _part(s: Stmt, path: tuple[Var, ...]) -> Part:
    loops: list[For] = []
    inner: list[For] = []
    while not isinstance(s, Store):
        _check_loop(s)
        assert isinstance(s, For)
        (inner if inner or s.kind is ForKind.TENSORIZED else loops).append(s)
        s = s.body
    return Part(tuple(loops), tuple(inner), s, path)
