"""Where a statement runs: its lanes, what its variables and buffers mean there, and who its agents are.

Lanes are NumPy axes.  The axis of an inner loop stands *before* those of outer loops, so a value of an outer loop
broadcasts to every inner statement as it is.  Loops of one iteration get no axis.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np

from ..errors import InterpError, require
from ..expr.expr import BufferLoad, Expr, Var, same
from ..loops.stmt import Buffer, Stmt, Store, stored_in
from ..loops.stmt_text import head_text
from ..loops.width import Widths
from .interp_expr import Code, Mask, Value, compile_expr, fixed
from .interp_memory import Level, Memory, load_code


@dataclass(frozen=True)
class RunningKernel:
    """A kernel being run: its blocks, and the axis of each of its loops counted from the outermost.

    `blocks` is the block of a lane, `levels` the number of levels that its blocks make, `threads` the level that
    barriers advance (None: one thread), `warp` the loop over the lanes of a warp, if there is one.
    """

    blocks: Value
    block_count: int
    block_axes: int
    levels: int
    threads: Level | None
    axes: Mapping[Var, int]
    warp: Var | None


@dataclass(frozen=True)
class Scope:
    """The lanes around a statement (see `Place`); `agents` is the parallel agent of a lane, one of `agent_count`.

    `widths` are those of the program, so that index arithmetic wraps nowhere.
    """

    widths: Widths
    shape: tuple[int, ...] = ()
    vars: Mapping[Var, Code] = field(default_factory=dict)
    memory: Mapping[Buffer, Memory] = field(default_factory=dict)
    levels: tuple[Level, ...] = ()
    agents: Value = 0
    agent_count: int = 1
    kernel: RunningKernel | None = None

    @property
    def lanes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def bind(self, var: Var, code: Code) -> Scope:
        return replace(self, vars={**self.vars, var: code})

    def with_lanes(self, var: Var, extent: int, agents: bool) -> Scope:
        """Run the iterations of a loop as lanes; as `agents` they must not race."""
        if extent == 1:
            return self.bind(var, fixed(np.dtype(var.dtype).type(0)))
        axis = np.arange(extent).reshape((extent,) + (1,) * len(self.shape))
        values = fixed(axis.astype(self.widths.counter(var)))
        out = replace(self.bind(var, values), shape=(extent, *self.shape))
        if not agents:
            return out
        return replace(out, agents=self.agents * extent + axis, agent_count=self.agent_count * extent)

    def with_level(self, name: str, outside: Scope, body: Stmt) -> tuple[Scope, Level | None]:
        """Watch the agents that were added since `outside`; None when there are none."""
        if self.agent_count == outside.agent_count:
            return self, None
        level = Level(name, self.agents, self.agent_count, stored_in(body))
        return replace(self, levels=(*self.levels, level)), level

    def with_buffer(self, buffer: Buffer) -> tuple[Scope, Memory]:
        """Storage for `buffer`: one per lane; in a kernel `shared` one per block and `global` one only."""
        if self.kernel is not None and buffer.storage != "local":
            k = self.kernel
            shared = buffer.storage == "shared" and k.block_count > 1
            offset = k.blocks * buffer.size if shared else None
            mem = Memory(buffer, k.block_count if shared else 1, offset, k.levels if shared else 0)
        elif self.shape:
            offset = np.arange(self.lanes).reshape(self.shape) * buffer.size
            mem = Memory(buffer, self.lanes, offset, len(self.levels))
        else:
            mem = Memory(buffer)
        return replace(self, memory={**self.memory, buffer: mem}), mem


class Here:
    """One statement in its scope: the `Site` of its expressions and the `Place` of its accesses."""

    def __init__(self, scope: Scope, statement: Stmt) -> None:
        self.scope, self._statement = scope, statement
        self.shape = scope.shape

    def code(self, e: Expr) -> Code:
        """The code of an index or a condition; index arithmetic may be one of 64 bits."""
        return compile_expr(self.scope.widths.wide(e), self)

    def value(self, e: Expr) -> Code:
        """The code of a value of the dtype of `e`."""
        return compile_expr(self.scope.widths.value(e), self)

    def var(self, v: Var) -> Code:
        if v not in self.scope.vars:
            self._unknown(v.name, "the variable is bound by no loop")
        return self.scope.vars[v]

    def memory(self, buffer: Buffer) -> Memory:
        if buffer not in self.scope.memory:
            self._unknown(buffer.name, "the buffer is neither argument nor allocated")
        return self.scope.memory[buffer]

    def _unknown(self, name: str, law: str) -> None:
        require(False, InterpError, name, law, statement=self._text())

    def watched(self, mem: Memory) -> tuple[Level, ...]:
        """The levels whose agents could race for `mem` here."""
        return tuple([level for level in self.scope.levels[mem.depth :] if mem.buffer in level.written])

    def load(self, e: BufferLoad, index: Code) -> Code:
        mem, s = self.memory(e.buffer), self._statement
        guarded = isinstance(s, Store) and s.buffer is e.buffer and same(s.index, e.index)
        # What a lane stores in the same statement is watched there.
        return load_code(self, mem, index, () if guarded else self.watched(mem))

    def full(self, x: Value, mask: Mask) -> Value:
        if x.shape != self.shape:
            x = np.broadcast_to(x, self.shape)
        if mask is None:
            return x
        return x[mask if mask.shape == self.shape else np.broadcast_to(mask, self.shape)]

    def fault(self, law: str, bad: Value, mask: Mask, buffer: Buffer, index: Value) -> NoReturn:
        if mask is not None:
            bad, index = self._spread(bad, mask), self._spread(index, mask)
        self.fail(f"buffer {buffer.name}: {law}", bad, mask, index=index, size=np.int64(buffer.size))

    def _spread(self, x: Value, mask: Mask) -> Value:
        """The inverse of `full`: the values of the active lanes back in place."""
        out = np.zeros(self.shape, x.dtype)
        out[np.broadcast_to(mask, self.shape)] = x
        return out

    def fail(self, law: str, bad: Value, mask: Mask, **got: Value) -> NoReturn:
        faulty = np.broadcast_to(bad if mask is None else bad & mask, self.shape)
        at = np.unravel_index(int(np.argmax(faulty)), self.shape)

        def here(x: Value) -> Any:
            return np.broadcast_to(x, self.shape)[at].item()

        values = ", got" + "".join(f" {key}={here(x)}" for key, x in got.items()) if got else ""
        loops = ", ".join(f"{v.name}={here(code.run(None))}" for v, code in self.scope.vars.items())
        raise InterpError(f"{law}{values}, in `{self._text()}`" + (f" where {loops}" if loops else ""))

    def _text(self) -> str:
        return head_text(self._statement)
