"""The command queue: a compiled program calls it, and it writes instructions.

Order within a module is the order of the calls; order between modules is said by `dep_push` and `dep_pop`.  A pop waits
until its module gets a real instruction, and then belongs to that one; a push belongs to the last instruction when that
is one of its module.  Only where neither is possible does the queue add an instruction that does nothing but pass
tokens (a NOP).
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from te_lite.errors import require

from ..core.errors import QueueError
from ..core.kinds import QUEUES, Deps, Memory, Module, queue_name
from ..isa.encode import encode_parts
from ..isa.instruction import Finish, Instruction, Load, Operation, Store, is_nop, module_of, nop
from ..sim.device import INSTRUCTION_BYTES, Device, Launch
from ..sim.dram import Buffer
from .uop_cache import UopCache
from .uop_kernel import AluMode, GemmMode, KernelRecorder, Record, UopKernel

MAX_TRANSFER = 1 << 25
_TAIL = 6  # instructions that a call and the end of a program may need beyond those that are there


class CommandQueue:
    """Instructions for a device.  `max_transfer` bounds the bytes of instructions, and of micro-ops, of a launch."""

    def __init__(self, device: Device, max_transfer: int = MAX_TRANSFER) -> None:
        self.device = device
        self._limit = max_transfer
        self._uop_buffer = device.dram.alloc(max_transfer)
        self._code_buffer = device.dram.alloc(max_transfer)
        self._kernels: dict[Hashable, UopKernel] = {}
        self._instructions: dict[tuple[Hashable, int], Operation] = {}
        self._cache = UopCache(device.config.depth(Memory.UOP))
        self._operations: list[Operation] = []
        self._flags: list[int] = []
        self._pending = dict.fromkeys(Module, 0)

    @property
    def program(self) -> list[Instruction]:
        """The instructions so far."""
        return [Instruction(op, Deps(flags)) for op, flags in zip(self._operations, self._flags, strict=True)]

    def load_buffer_2d(
        self,
        source: Buffer,
        offset: int,
        size: tuple[int, int],
        stride: int,
        sram: int,
        memory: Memory,
        pad: tuple[int, int, int, int] = (0, 0, 0, 0),
    ) -> None:
        """Load `size` (rows, elements of a row) from element `offset` of a buffer; `pad` is (top, bottom, left, right).

        Raises QueueError for a memory that cannot be loaded so.
        """
        loadable = memory not in (Memory.OUT, Memory.UOP)
        require(loadable, QueueError, "load_buffer_2d", "the memory must be INP, WGT, ACC or ACC_8BIT", memory=memory)
        start = source.address // self.device.config.elem_bytes(memory) + offset
        self._emit(Load(memory, sram, start, size[0], size[1], stride, *pad))
        self._check_room()

    def store_buffer_2d(self, sram: int, target: Buffer, offset: int, size: tuple[int, int], stride: int) -> None:
        """Store accumulators, narrowed, as `size` (rows, elements of a row) from element `offset` of a buffer."""
        start = target.address // self.device.config.elem_bytes(Memory.OUT) + offset
        self._emit(Store(sram, start, size[0], size[1], stride))
        self._check_room()

    def gemm(self, key: Hashable, record: Record) -> None:
        """Run the GEMM kernel that is known as `key`; `record` makes it at the first use.  Raises QueueError."""
        self._run(key, record, GemmMode)

    def alu(self, key: Hashable, record: Record) -> None:
        """Run the ALU kernel that is known as `key`; `record` makes it at the first use.  Raises QueueError."""
        self._run(key, record, AluMode)

    def dep_pop(self, source: Module, target: Module) -> None:
        """The next instruction of `target` waits for a token of `source`.  Raises QueueError for load and store."""
        self._check_pair(source, target)
        bit = int(Deps.POP_PREV if source < target else Deps.POP_NEXT)
        if self._pending[target] & bit:
            self._commit_pops(target)
        self._pending[target] |= bit

    def dep_push(self, source: Module, target: Module) -> None:
        """The last instruction of `source` gives a token to `target`.  Raises QueueError for load and store."""
        self._check_pair(source, target)
        self._commit_pops(source)
        bit = int(Deps.PUSH_NEXT if source < target else Deps.PUSH_PREV)
        if self._flags and _stage(self._operations[-1]) is source and not self._flags[-1] & bit:
            self._flags[-1] |= bit
        else:
            self._append(nop(source), bit)

    def synchronize(self, rng: np.random.Generator | None = None) -> Launch:
        """Wait for loads and stores, run what was queued, and begin a new program; `rng` as in `Device.launch`."""
        self.dep_push(Module.STORE, Module.COMPUTE)
        self.dep_push(Module.LOAD, Module.COMPUTE)
        self.dep_pop(Module.STORE, Module.COMPUTE)
        self.dep_pop(Module.LOAD, Module.COMPUTE)
        self._commit_pops(Module.COMPUTE)
        self._append(Finish(), 0)
        words = encode_parts(self.device.config, self._operations, self._flags)
        self._uop_buffer.write(self._cache.image())
        self._code_buffer.write(words)
        self._operations, self._flags = [], []
        self._cache.clear()
        return self.device.launch(self._code_buffer.address, len(words), rng)

    def _run(self, key: Hashable, record: Record, mode: type[GemmMode | AluMode]) -> None:
        kernel = self._kernels.get(key)
        if kernel is None:
            recorder = KernelRecorder(self.device.config)
            record(recorder)
            kernel = self._kernels[key] = recorder.finish()
        law = f"the kernel must be one of mode {mode.__name__}"
        require(isinstance(kernel.mode, mode), QueueError, f"kernel {key!r}", law, found=kernel.mode)
        begin = self._resident(key, kernel)
        if (key, begin) not in self._instructions:
            self._instructions[key, begin] = kernel.instruction(begin)
        self._emit(self._instructions[key, begin])
        self._check_room()

    def _resident(self, key: Hashable, kernel: UopKernel) -> int:
        """Where the kernel lies in the micro-op memory; it is loaded when it is not there."""
        begin = self._cache.find(key)
        if begin is None:
            size, elem = len(kernel.uops), self.device.config.elem_bytes(Memory.UOP)
            # the log of a launch must fit its buffer; the next launch begins with an empty one
            if (self._cache.logged + size) * elem > self._limit:
                self.synchronize()
            begin, start = self._cache.insert(key, kernel)
            source = self._uop_buffer.address // elem + start
            self._emit(Load(Memory.UOP, begin, source, 1, size, size))
        return begin

    def _emit(self, op: Operation) -> None:
        """A real instruction takes the pops that wait for its module."""
        module = module_of(op)
        self._append(op, self._pending[module])
        self._pending[module] = 0

    def _append(self, op: Operation, flags: int) -> None:
        self._operations.append(op)
        self._flags.append(flags)

    def _commit_pops(self, module: Module) -> None:
        if self._pending[module]:
            self._append(nop(module), self._pending[module])
            self._pending[module] = 0

    def _check_room(self) -> None:
        if (len(self._operations) + _TAIL) * INSTRUCTION_BYTES > self._limit:
            self.synchronize()

    @staticmethod
    def _check_pair(source: Module, target: Module) -> None:
        if (source, target) not in QUEUES:
            raise QueueError(f"{queue_name(source, target)}: no tokens pass between these modules")


def _stage(op: Operation) -> Module | None:
    """The module that may add a push to an instruction; nobody adds one to a load that does nothing."""
    return None if isinstance(op, Load) and is_nop(op) else module_of(op)
