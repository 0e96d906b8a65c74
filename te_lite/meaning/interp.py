"""Run a lowered program on NumPy arrays: the definition of the loop language, and the oracle of every test.

SERIAL, UNROLLED and VTHREAD loops iterate.  The iterations of PARALLEL, VECTORIZED, BLOCK and THREAD loops are
lanes: each statement is run for all of them at once, and lanes that meet in memory without a barrier between them
are an error, not an accident.  A serial loop whose iterations provably touch different elements (`independent`) is
run as lanes too, which changes the speed and nothing else.

Refused, with the buffer, element, statement and loop variables: an index out of bounds, a read of an element
that nothing wrote, a race, a barrier that only some threads of a block reach.
`local` buffers inside lanes exist once a lane, `shared` ones once a block, and `global` ones once a lane of the
PARALLEL loops around them, but only once in a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..bounds.loop_scope import LANES, WARP
from ..errors import InterpError, require
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
    stmts_of,
    stored_in,
)
from ..loops.width import Widths
from .independent import independent
from .interp_expr import Code, Mask, Value, fixed
from .interp_memory import Level, Memory, Run, store_code
from .interp_scope import Here, RunningKernel, Scope

_AGENTS = (ForKind.PARALLEL, ForKind.VECTORIZED)
MAX_SERIAL_LANES = 1 << 14
_MAX_PRIVATE = 1 << 22


def run(func: LoweredFunc, args: Sequence[Any]) -> None:
    """Execute `func` in place on one C-contiguous array per buffer of `func.args`.

    Arguments that the program stores to start uninitialised, whatever they hold.  Raises InterpError for
    arguments that do not fit and for everything the module's docstring refuses.
    """
    require(len(args) == len(func.args), InterpError, func.name, f"{len(func.args)} arrays are needed", args=len(args))
    stored = stored_in(func.body)
    memory = {}
    for buffer, array in zip(func.args, args, strict=True):
        _check_argument(buffer, array, buffer in stored)
        memory[buffer] = Memory(buffer)
        memory[buffer].bind(array.reshape(-1), is_input=buffer not in stored)
    with np.errstate(all="ignore"):
        _Program().compile(func.body, Scope(Widths.of(func.body), memory=memory))(None)


def _check_argument(buffer: Buffer, array: Any, stored: bool) -> None:
    name = buffer.name
    require(isinstance(array, np.ndarray), InterpError, name, "a NumPy array is needed", type=type(array).__name__)
    require(array.dtype == buffer.dtype, InterpError, name, f"the dtype must be {buffer.dtype}", dtype=str(array.dtype))
    require(array.shape == buffer.shape, InterpError, name, f"the shape must be {buffer.shape}", shape=array.shape)
    require(array.flags.c_contiguous and array.size == buffer.size, InterpError, name, "must be C-contiguous")
    require(array.flags.writeable or not stored, InterpError, name, "the program writes to a read-only array")


class _Program:
    """Compiles statements to closures; `_env` holds the serial loop variables while they run."""

    def __init__(self) -> None:
        self._env: list[Value] = []

    def compile(self, s: Stmt, scope: Scope) -> Run:
        match s:
            case Seq(stmts=stmts):
                return _sequence([self.compile(x, scope) for x in stmts])
            case If():
                return self._if(s, scope)
            case Store():
                return self._store(s, scope)
            case Alloc(buffer=buffer, body=body):
                inner, mem = scope.with_buffer(buffer)
                return _after([mem.allocate], self.compile(body, inner))
            case For(kind=kind):
                require(s.extent > 0, InterpError, s.var.name, "the extent must be positive", extent=s.extent)
                if kind in (ForKind.BLOCK, ForKind.THREAD):
                    return self._kernel(s, scope)
                return self._agents(s, scope) if kind in _AGENTS else self._serial(s, scope)
            case Barrier():
                return _meeting(Here(scope, s))
            case ThreadReduce():
                return self._thread_reduce(s, scope)
            case Instruction():
                law = "a statement that only kernels which an emitter writes have"
                require(not s.by_emitters, InterpError, repr(s.places[0]), law)
                return self._warp(s, scope)

    def _slot(self) -> int:
        self._env.append(None)
        return len(self._env) - 1

    def _slot_code(self, slot: int) -> Code:
        env = self._env
        return Code(lambda mask: env[slot])

    # ---------------------------------------------------------------------------------------------- leaves

    def _store(self, s: Store, scope: Scope) -> Run:
        here = Here(scope, s)
        mem = here.memory(s.buffer)
        ok = s.value.dtype == s.buffer.dtype
        require(ok, InterpError, s.buffer.name, f"stores must be of {s.buffer.dtype}", dtype=s.value.dtype)
        return store_code(here, mem, here.code(s.index), here.value(s.value), here.watched(mem))

    def _if(self, s: If, scope: Scope) -> Run:
        cond, then = Here(scope, s).code(s.cond).run, self.compile(s.then, scope)

        def run(mask: Mask) -> None:
            c = cond(mask)
            if c.ndim == 0:
                if c:
                    then(mask)
                return
            active = c if mask is None else c & mask
            if active.all():
                then(None)
            elif active.any():
                then(active)

        return run

    def _thread_reduce(self, s: ThreadReduce, scope: Scope) -> Run:
        here = Here(scope, s)
        meet = _meeting(here)
        src = [here.value(e).run for e in s.src]
        axis, active = _reduced_axis(s, scope)
        count = 1 if axis is None else s.lanes or s.extent
        first = np.arange(s.extent) // s.lanes * s.lanes if s.lanes else np.zeros(1, int)
        slots = [self._slot() for _ in (*s.combiner.lhs, *s.combiner.rhs)]
        pairs = zip((*s.combiner.lhs, *s.combiner.rhs), slots, strict=True)
        bound = {**scope.vars, **{v: self._slot_code(k) for v, k in pairs}}
        combining = Here(replace(scope, vars=bound), s)
        combine = [combining.value(e).run for e in s.combiner.result]
        left, right = slots[: len(src)], slots[len(src) :]
        stores = []
        for buffer, slot in zip(s.dst, left, strict=True):
            mem = here.memory(buffer)
            stores.append(store_code(here, mem, fixed(np.int32(0)), self._slot_code(slot), here.watched(mem)))
        env = self._env

        def run(mask: Mask) -> None:
            wanted = mask if active is None else active if mask is None else active & mask
            values = [np.broadcast_to(f(wanted), scope.shape) for f in src]
            meet(mask)
            for t in range(count):
                new = values if axis is None else [np.take(x, first + t, axis) for x in values]
                for k, x in zip(right if t else left, new, strict=True):
                    env[k] = x
                if t:
                    for k, x in zip(left, [f(None) for f in combine], strict=True):
                        env[k] = x
            for store in stores:
                store(mask)

        return run

    def _warp(self, s: Instruction, scope: Scope) -> Run:
        """An instruction of all lanes of a warp: they read, it is executed on what all of them have, they write."""
        here, operation = Here(scope, s), s.operation()
        axis, env, mem = _warp_axis(here), self._env, here.memory(operation.writes[0].buffer)
        reads = [[here.value(e).run for e in part] for part in operation.reads]
        slots = [self._slot() for _ in operation.writes]
        stores = [
            store_code(here, mem, here.code(e.index), self._slot_code(slot), here.watched(mem))
            for e, slot in zip(operation.writes, slots, strict=True)
        ]

        def run(mask: Mask) -> None:
            _whole_warps(here, axis, mask)
            held = [np.stack([np.broadcast_to(f(mask), scope.shape) for f in part], -1) for part in reads]
            got = operation.execute(*[np.moveaxis(x, axis, -2) for x in held])
            for slot, x in zip(slots, np.moveaxis(np.moveaxis(got, -2, axis), -1, 0), strict=True):
                env[slot] = x
            for store in stores:
                store(mask)

        return run

    # ----------------------------------------------------------------------------------------------- loops

    def _serial(self, s: For, scope: Scope) -> Run:
        if s.extent == 1 or _worth_lanes(s, scope):
            return self.compile(s.body, scope.with_lanes(s.var, s.extent, agents=False))
        slot, env = self._slot(), self._env
        number = np.dtype(scope.widths.counter(s.var)).type
        body = self.compile(s.body, scope.bind(s.var, self._slot_code(slot)))

        def run(mask: Mask) -> None:
            for v in range(s.extent):
                env[slot] = number(v)
                body(mask)

        return run

    def _agents(self, s: For, scope: Scope) -> Run:
        ok = s.kind is ForKind.VECTORIZED or scope.kernel is None
        require(ok, InterpError, s.var.name, "a parallel loop must not stand in a kernel")
        inner, level = scope.with_lanes(s.var, s.extent, agents=True).with_level(s.kind.value, scope, s.body)
        body = self.compile(s.body, inner)
        return body if level is None else _after([level.advance], body)

    def _kernel(self, s: For, scope: Scope) -> Run:
        ok = scope.kernel is None and not scope.shape
        require(ok, InterpError, s.var.name, f"a {s.kind.value} loop must be in the nest that starts a kernel")
        loops, allocs, body = _kernel_nest(s)
        inner, levels = _kernel_scope(loops, body, scope)
        storage = []
        for buffer in allocs:
            inner, mem = inner.with_buffer(buffer)
            storage.append(mem)
        starts = [level.advance for level in levels] + [mem.allocate for mem in storage]
        return _after(starts, self.compile(body, inner))


def _kernel_scope(loops: list[For], body: Stmt, scope: Scope) -> tuple[Scope, list[Level]]:
    """The scope of the body of a kernel, and the levels that begin with it."""
    blocks = scope
    for loop in (x for x in loops if x.kind is ForKind.BLOCK):
        blocks = blocks.with_lanes(loop.var, loop.extent, agents=True)
    block_scope, block_level = blocks.with_level("block", scope, body)
    threads = block_scope
    for loop in (x for x in loops if x.kind is ForKind.THREAD):
        threads = threads.with_lanes(loop.var, loop.extent, agents=True)
    inner, thread_level = threads.with_level("thread", block_scope, body)
    ordered = sorted(loops, key=lambda x: x.kind is ForKind.THREAD)
    axes = {x.var: k for k, x in enumerate([x for x in ordered if x.extent > 1])}
    counts = blocks.agent_count, len(blocks.shape), len(block_scope.levels)
    warps = [x.var for x in loops if x.tag == WARP and x.extent == LANES]
    kernel = RunningKernel(blocks.agents, *counts, thread_level, axes, warps[0] if warps else None)
    return replace(inner, kernel=kernel), [level for level in (block_level, thread_level) if level is not None]


def _sequence(runs: list[Run]) -> Run:
    def run(mask: Mask) -> None:
        for f in runs:
            f(mask)

    return run


def _after(starts: Sequence[Callable[[], object]], body: Run) -> Run:
    def run(mask: Mask) -> None:
        for start in starts:
            start()
        body(mask)

    return run


def _worth_lanes(s: For, scope: Scope) -> bool:
    """Whether a serial loop is run as lanes: few enough, and independent."""
    lanes = scope.lanes * s.extent
    sizes = [x.buffer.size for x in stmts_of(s.body) if isinstance(x, Alloc)]
    if lanes > MAX_SERIAL_LANES or lanes * max(sizes, default=0) > _MAX_PRIVATE:
        return False
    return independent(s, ("global", "local") if scope.kernel is None else ("local",))


def _kernel_nest(s: Stmt) -> tuple[list[For], list[Buffer], Stmt]:
    """The BLOCK and THREAD loops and Allocs that start at `s`, and what they enclose."""
    loops: list[For] = []
    allocs: list[Buffer] = []
    while True:
        match s:
            case For(kind=ForKind.BLOCK | ForKind.THREAD):
                require(s.extent > 0, InterpError, s.var.name, "the extent must be positive", extent=s.extent)
                loops.append(s)
                s = s.body
            case Alloc(buffer=buffer, body=body):
                allocs.append(buffer)
                s = body
            case _:
                return loops, allocs, s


def _meeting(here: Here) -> Run:
    """A barrier: every thread of a block takes part, or none."""
    scope = here.scope
    kernel = scope.kernel
    require(kernel is not None, InterpError, "barrier", "only threads of a kernel can meet")
    assert kernel is not None
    rank = len(kernel.axes)
    require(len(scope.shape) == rank, InterpError, "barrier", "must not stand in a vectorized loop")
    thread_axes = tuple(range(rank - kernel.block_axes))
    threads = kernel.threads

    def run(mask: Mask) -> None:
        if threads is None:
            return
        if mask is None:
            threads.advance()
            return
        lanes = np.broadcast_to(mask, scope.shape)
        some, every = lanes.any(axis=thread_axes), lanes.all(axis=thread_axes)
        if (some != every).any():
            here.fail("barrier: only some threads of a block reach it", ~lanes & some, None)
        threads.advance(every)

    return run


def _reduced_axis(s: ThreadReduce, scope: Scope) -> tuple[int | None, Value]:
    """The lane axis of `s.thread` (None: one thread only), and the lanes that contribute (None: all)."""
    name = s.thread.name
    require(s.thread in scope.vars, InterpError, name, "a thread reduction needs a loop over its threads")
    threads = scope.vars[s.thread].run(None)
    count = int(threads.size)
    require(1 <= s.extent <= count, InterpError, name, f"at most {count} threads can be reduced", extent=s.extent)
    if scope.kernel is None or s.thread not in scope.kernel.axes:
        require(count == 1, InterpError, name, "only the threads of a kernel can be reduced")
        return None, None
    axis = len(scope.shape) - 1 - scope.kernel.axes[s.thread]
    return axis, None if s.extent == count else threads < s.extent


def _warp_axis(here: Here) -> int:
    """The axis of the lanes of a warp."""
    kernel = here.scope.kernel
    warp = None if kernel is None else kernel.warp
    require(warp is not None, InterpError, "mma", f"needs a kernel with {LANES} threads along {WARP}")
    assert kernel is not None and warp is not None
    require(len(here.scope.shape) == len(kernel.axes), InterpError, "mma", "must not stand in a vectorized loop")
    return len(here.scope.shape) - 1 - kernel.axes[warp]


def _whole_warps(here: Here, axis: int, mask: Mask) -> None:
    """All lanes of a warp take part, or none."""
    if mask is not None:
        lanes = np.broadcast_to(mask, here.scope.shape)
        some, every = lanes.any(axis=axis, keepdims=True), lanes.all(axis=axis, keepdims=True)
        if (some != every).any():
            here.fail("mma: only some lanes of a warp reach it", ~lanes & some, None)
