"""The cycle model in lanes: thousands of programs at once, a few iterations of every loop.

Three modules work side by side and wait for each other's tokens, as in `sim/cycles.py`.  The time of an iteration is
constant after a few of them.  So a few are played, and the time of each module and token is extrapolated linearly.
What is not told apart is where padding lies: each tile takes the time of an average one.

Loops of one iteration vanish when a program is lowered, and tokens with them; so programs are played together whose
loops vanish alike and that have as many threads.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from ..compiler.steps import Step
from ..compiler.tokens import Edge, OrderedLoop
from ..core.config import Config
from ..core.kinds import QUEUES, Module
from ..sim import CycleModel
from .lane_calls import LaneCall, LaneProgram, calls_of, lane_program
from .lane_nest import LaneNest, LoopKey, loops_of, without

Floats = np.ndarray[Any, np.dtype[np.float64]]
PLAYED = 4
"""Iterations of a loop that are played."""


def cycles(nest: LaneNest, n: int, config: Config, model: CycleModel) -> Floats:
    """Cycles of each of `n` programs, float64 [n]; the launch is counted."""
    out, costs = np.empty(n), calls_of(nest, config, model)
    extents = dict(loops_of(nest.body))
    told_apart = (nest.threads, *[np.equal(extent, 1) for extent in extents.values()])
    structure = np.stack([np.broadcast_to(x, (n,)) for x in told_apart])
    kinds, kind = np.unique(structure, axis=1, return_inverse=True)
    for k, (threads, *once) in enumerate(kinds.T.tolist()):
        mine = np.flatnonzero(kind.reshape(-1) == k)
        single = frozenset(key for key, gone in zip(extents, once, strict=True) if gone)
        body = without(nest.body, single)
        player = _Player(lane_program(replace(nest, body=body), costs), threads, mine, n, model)
        player.run()
        out[mine] = model.launch + np.max(list(player.free.values()), axis=0)
    return out


class _Player:
    """Plays the lanes `mine` of a program, which have so many threads."""

    def __init__(self, program: LaneProgram, threads: int, mine: Any, n: int, model: CycleModel) -> None:
        self.program, self.threads, self.model = program, threads, model
        self._mine, self._n = mine, n
        self.free: dict[Module, Floats] = {m: np.zeros(len(mine)) for m in Module}
        self._tokens: dict[Edge, list[Floats]] = {edge: [] for edge in QUEUES}
        self._pending: dict[Module, list[Edge]] = {m: [] for m in Module}
        self._last: tuple[Module, set[Edge]] | None = None
        self._iteration: dict[LoopKey, int] = {}
        self._calls = {
            step: [(c, self._lanes(c.cycles), self._lanes(c.loaded)) for c in calls]
            for step, calls in program.calls.items()
        }

    def _lanes(self, values: Any) -> Floats:
        found: Floats = np.broadcast_to(np.asarray(values, np.float64), (self._n,))[self._mine]
        return found

    def run(self) -> None:
        """The whole program."""
        body = self.program.body
        self._all(self._push, body.carried)
        self._body(body)
        self._all(self._pop, body.carried)
        for module in (Module.STORE, Module.LOAD):
            self._push((module, Module.COMPUTE))
            self._pop((module, Module.COMPUTE))
        self._commit(Module.COMPUTE)
        self._instruction(Module.COMPUTE, self.model.token_only)

    def _body(self, loop: OrderedLoop) -> None:
        for item in loop.body:
            if isinstance(item.node, Step):
                self._step(item.node, item.pops, item.pushes)
            else:
                self._all(self._pop, item.pops)
                self._loop(item.node)
                self._all(self._push, item.pushes)

    def _loop(self, loop: OrderedLoop) -> None:
        assert loop.var is not None
        keys, extents = self.program.loops[loop.var]
        extent = np.broadcast_to(extents, (self._n,))[self._mine]
        before = self._state()
        for iteration in range(min(PLAYED, int(extent.max(initial=1)))):
            self._iteration.update(dict.fromkeys(keys, iteration))
            start = self._state()
            self._body(loop)
            # lanes whose loop is over keep their state, so loops of all lengths are played together
            goes_on = iteration < extent
            if not goes_on.all():
                self._restore([np.where(goes_on, b, a) for a, b in zip(start, self._state(), strict=True)])
            before = start
        # the last two states differ by what each iteration takes from here on
        more = np.maximum(extent - PLAYED, 0)
        if more.any():
            self._restore([b + (b - a) * more for a, b in zip(before, self._state(), strict=True)])

    def _state(self) -> list[Floats]:
        """When each module is free, and each token is there."""
        return [*self.free.values(), *[t for tokens in self._tokens.values() for t in tokens]]

    def _restore(self, state: list[Floats]) -> None:
        """Go on from another state."""
        left = iter(state)
        self.free = {m: next(left) for m in self.free}
        self._tokens = {edge: [next(left) for _ in tokens] for edge, tokens in self._tokens.items()}

    def _step(self, step: Step, pops: tuple[Edge, ...], pushes: tuple[Edge, ...]) -> None:
        """As the compiled program emits it: thread by thread, tokens of other modules before and after."""
        module = step.module
        self._all(self._pop, [e for e in pops if e[1] is not module])
        for _ in range(self.threads):
            for edge in [e for e in pops if e[1] is module]:
                self._pop(edge)
            for call, length, loaded in self._calls.get(step, ()):
                if self._is_new(call):
                    self._instruction(module, loaded)
                self._instruction(module, length)
            for edge in [e for e in pushes if e[0] is module]:
                self._push(edge)
        self._all(self._push, [e for e in pushes if e[0] is not module])

    def _is_new(self, call: LaneCall) -> bool:
        """Whether a kernel is not in the micro-op memory yet."""
        kernel = not (isinstance(call.loaded, float) and call.loaded == 0.0)
        return kernel and all(self._iteration.get(key, 0) == 0 for key in call.path if key not in call.moves)

    def _all(self, act: Any, edges: Iterable[Edge]) -> None:
        for edge in edges:
            for _ in range(self.threads):
                act(edge)

    # ------------------------------------------------------------------ what the command queue does (runtime/queue.py)

    def _pop(self, edge: Edge) -> None:
        if edge in self._pending[edge[1]]:
            self._commit(edge[1])
        self._pending[edge[1]].append(edge)

    def _push(self, edge: Edge) -> None:
        source = edge[0]
        self._commit(source)
        if self._last is None or self._last[0] is not source or edge in self._last[1]:
            self._instruction(source, self.model.token_only)
        assert self._last is not None
        self._last[1].add(edge)
        self._tokens[edge].append(self.free[source])

    def _commit(self, module: Module) -> None:
        if self._pending[module]:
            self._instruction(module, self.model.token_only)

    def _instruction(self, module: Module, length: Any) -> None:
        begin = self.free[module]
        for edge in self._pending[module]:
            begin = np.maximum(begin, self._tokens[edge].pop(0))
        self._pending[module] = []
        self.free[module] = begin + length
        self._last = module, set()
