"""Compiled programs, and how they are queued on a device."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from te_lite import Tensor
from te_lite.expr.expr import Var
from te_lite.loops.stmt import Buffer
from te_lite.lowering.lower import as_function, loop_nest
from te_lite.schedule.schedule import Schedule
from te_lite.schedule.state import State
from te_lite.verify.verify import verify

from ..core.config import Config
from ..core.kinds import Memory
from ..runtime import CommandQueue
from ..runtime.uop_kernel import GemmMode
from ..sim.dram import Buffer as DramBuffer
from .host_nest import host_nest
from .kernel_calls import KernelCall
from .places import place
from .steps import Call, Step, steps_of
from .tokens import Edge, OrderedLoop, ordered
from .transfer import Transfer


@dataclass(frozen=True, eq=False)
class Program:
    """A schedule as calls of the runtime: `args` are the buffers of its tensors, in order, and `outputs` those that are
    stored to; `threads` are its virtual threads (variable, extent), `body` the calls with their tokens."""

    config: Config
    args: tuple[Buffer, ...]
    threads: tuple[tuple[Var, int], ...]
    body: OrderedLoop
    outputs: frozenset[Buffer]

    def emit(self, queue: CommandQueue, buffers: Iterable[DramBuffer]) -> None:
        """Queue the program on the buffers of the arguments; nothing runs before the queue is synchronised."""
        _Emitter(self, queue, dict(zip(self.args, buffers, strict=True))).run()


def compile_schedule(schedule: Schedule | State, args: Iterable[Tensor], config: Config | None = None) -> Program:
    """Compile a schedule whose tensors live in the memories of the accelerator (`scopes.py`).

    Raises CompileError, with the reason, for a schedule that the accelerator cannot run; LowerError or ScheduleError
    for one that has no loop nest at all.
    """
    config = config or Config()
    state = schedule if isinstance(schedule, State) else schedule.state
    facts, stmt = loop_nest(state, tuple(args))
    verify(as_function(facts, stmt, facts.state.dag.outputs[0].name))
    nest = host_nest(stmt)
    body = ordered(steps_of(nest, place(nest, config), config))
    stored = frozenset(part.store.buffer for part in nest.parts if part.store.buffer.scope == "global")
    return Program(config, tuple(facts.arg_buffers.values()), nest.threads, body, stored)


class _Emitter:
    """Runs the host's loops.  `env` has the values of their variables, and of those of the current thread."""

    def __init__(self, program: Program, queue: CommandQueue, buffers: Mapping[Buffer, DramBuffer]) -> None:
        self.program = program
        self.queue = queue
        self.buffers = buffers
        self.env: dict[Var, int] = {}
        variables = [v for v, _ in program.threads]
        points = itertools.product(*(range(extent) for _, extent in program.threads))
        self.threads = [list(zip(variables, point, strict=True)) for point in points]

    def run(self) -> None:
        """The whole program, with the tokens that it carries."""
        body = self.program.body
        self._push(body.carried)
        self._loop(body)
        self._pop(body.carried)

    def _loop(self, loop: OrderedLoop) -> None:
        for value in range(loop.extent):
            if loop.var is not None:
                self.env[loop.var] = value
            for item in loop.body:
                if isinstance(item.node, Step):
                    self._step(item.node, item.pops, item.pushes)
                else:
                    self._pop(item.pops)
                    self._loop(item.node)
                    self._push(item.pushes)

    def _step(self, step: Step, pops: tuple[Edge, ...], pushes: tuple[Edge, ...]) -> None:
        """All threads, one after the other; tokens of other modules pass before and after all of them."""
        module, queue = step.module, self.queue
        self._pop([e for e in pops if e[1] is not module])
        own_pops, own_pushes = [e for e in pops if e[1] is module], [e for e in pushes if e[0] is module]
        for thread, point in enumerate(self.threads):
            self.env.update(point)
            for edge in own_pops:
                queue.dep_pop(*edge)
            for call in step.calls:
                self._call(call, thread)
            for edge in own_pushes:
                queue.dep_push(*edge)
        self._push([e for e in pushes if e[0] is not module])

    def _pop(self, edges: Iterable[Edge]) -> None:
        for edge in edges:
            for _ in self.threads:
                self.queue.dep_pop(*edge)

    def _push(self, edges: Iterable[Edge]) -> None:
        for edge in edges:
            for _ in self.threads:
                self.queue.dep_push(*edge)

    def _call(self, call: Call, thread: int) -> None:
        match call:
            case Transfer():
                self._transfer(call, thread)
            case KernelCall(mode=mode):
                base = call.at(thread, self.env)
                run = self.queue.gemm if isinstance(mode, GemmMode) else self.queue.alu
                run((call, base), call.record(base))

    def _transfer(self, t: Transfer, thread: int) -> None:
        offset, size, frame = t.window(self.env)
        sram = t.sram.at(self.env) + thread * t.copy
        for far, near in t.repeats:
            if t.memory is Memory.OUT:
                self.queue.store_buffer_2d(sram + near, self.buffers[t.dram], offset + far, size, t.rows.stride)
            else:
                source = self.buffers[t.dram]
                self.queue.load_buffer_2d(source, offset + far, size, t.rows.stride, sram + near, t.memory, frame)
