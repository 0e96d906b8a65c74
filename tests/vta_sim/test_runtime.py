"""The command queue: which instructions its calls become."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest

from tests.vta_sim.conv import Layer, tiles_of
from tests.vta_sim.packed import ConvProgram
from vta_sim import CommandQueue, Device, QueueError
from vta_sim.core.kinds import AluOp, Memory, Module
from vta_sim.isa import Instruction, decode, disassemble
from vta_sim.isa.instruction import Gemm, Load
from vta_sim.runtime import KernelRecorder, UopCache
from vta_sim.runtime.uop_kernel import UopKernel
from vta_sim.sim import Launch

LOAD, COMPUTE, STORE = Module.LOAD, Module.COMPUTE, Module.STORE

GOLDEN = """
NOP-STORE-STAGE push_prev
NOP-STORE-STAGE push_prev
LOAD UOP y1 x7/7 sram=0x0 dram=0x400 pop_next
GEMM reset uops[0,7) 7(dst+1) x 2(dst+49) push_prev
LOAD UOP y1 x7/7 sram=0x7 dram=0x407 pop_next
GEMM reset uops[7,14) 7(dst+1) x 2(dst+49) push_prev
LOAD INP y7 x7/7 sram=0x0 dram=0x400100 pad=1,1,1,1 pop_next
LOAD WGT y2 x9/18 sram=0x0 dram=0x40020 push_next
LOAD INP y7 x7/7 sram=0x51 dram=0x400100 pad=1,1,1,1 pop_next
LOAD WGT y2 x9/18 sram=0x12 dram=0x40044 push_next
LOAD UOP y1 x42/42 sram=0xe dram=0x40e pop_prev
GEMM uops[14,56) 7(dst+1 src+1) x 3(src+1 wgt+1) push_prev
LOAD UOP y1 x42/42 sram=0x38 dram=0x438 pop_prev
GEMM uops[56,98) 7(dst+1 src+1) x 3(src+1 wgt+1) push_prev
LOAD INP y7 x7/7 sram=0x0 dram=0x400131 pad=1,1,1,1 pop_next
LOAD WGT y2 x9/18 sram=0x0 dram=0x40029 push_next
LOAD INP y7 x7/7 sram=0x51 dram=0x400131 pad=1,1,1,1 pop_next
LOAD WGT y2 x9/18 sram=0x12 dram=0x4004d push_next
GEMM uops[14,56) 7(dst+1 src+1) x 3(src+1 wgt+1) pop_prev push_prev
GEMM uops[56,98) 7(dst+1 src+1) x 3(src+1 wgt+1) pop_prev push_prev
NOP-LOAD-STAGE pop_next
LOAD UOP y1 x1/1 sram=0x62 dram=0x462
ALU shr imm 8 uops[98,99) 1 x 98(dst+1 src+1)
LOAD UOP y1 x1/1 sram=0x63 dram=0x463
ALU min imm 127 uops[99,100) 1 x 98(dst+1 src+1)
LOAD UOP y1 x1/1 sram=0x64 dram=0x464
ALU max imm 0 uops[100,101) 1 x 98(dst+1 src+1) push_next
LOAD UOP y1 x1/1 sram=0x65 dram=0x465
ALU shr imm 8 uops[101,102) 1 x 98(dst+1 src+1)
LOAD UOP y1 x1/1 sram=0x66 dram=0x466
ALU min imm 127 uops[102,103) 1 x 98(dst+1 src+1)
LOAD UOP y1 x1/1 sram=0x67 dram=0x467
ALU max imm 0 uops[103,104) 1 x 98(dst+1 src+1) push_next
STORE OUT y1 x98/98 sram=0x0 dram=0x400700 pop_prev push_prev
STORE OUT y1 x98/98 sram=0x62 dram=0x400762 pop_prev push_prev
NOP-COMPUTE-STAGE pop_next
NOP-STORE-STAGE push_prev
NOP-LOAD-STAGE pop_next
NOP-LOAD-STAGE push_next
NOP-COMPUTE-STAGE pop_next
NOP-COMPUTE-STAGE pop_prev pop_next
FINISH
"""


def listing(launch: Launch) -> list[str]:
    """The instructions of a launch as text; of a single row the distance to the next one says nothing."""
    lines = disassemble(decode(launch.columns.config, launch.columns.words)).splitlines()
    return [re.sub(r" y1 x(\d+)/\d+ ", r" y1 x\1/\1 ", " ".join(line.split()[1:])) for line in lines]


def test_published_listing() -> None:
    program = ConvProgram(Device(), Layer(7, 32, 64, 3, 1, 1), tiles_of(7, 7, 1, 2, 2, 1))
    expected = program.fill(np.random.default_rng(0))
    assert listing(program.run()) == GOLDEN.split("\n")[1:-1]
    np.testing.assert_array_equal(program.result(), expected)
    uops = program.device.sram.uop[14:56]
    acc = [co * 49 + i * 7 for _, co, i in itertools.product(range(3), range(2), range(7))]
    inp = [di * 9 + i * 9 for di, _, i in itertools.product(range(3), range(2), range(7))]
    wgt = [co * 9 + di * 3 for di, co, _ in itertools.product(range(3), range(2), range(7))]
    assert (uops & 0x7FF).tolist() == acc and (uops >> 11 & 0x7FF).tolist() == inp and (uops >> 22).tolist() == wgt


END = ["NOP-STORE-STAGE push_prev", "NOP-LOAD-STAGE push_next", "NOP-COMPUTE-STAGE pop_prev pop_next", "FINISH"]


def test_an_empty_program() -> None:
    assert listing(CommandQueue(Device()).synchronize()) == END


def test_pushes_join_the_last_instruction_of_their_module_only() -> None:
    device = Device()
    queue = CommandQueue(device)
    buffer = device.dram.alloc(4096)
    queue.load_buffer_2d(buffer, 1, (2, 3), 5, 7, Memory.INP)
    queue.dep_push(LOAD, COMPUTE)  # joins the load
    queue.dep_push(LOAD, COMPUTE)  # the bit is taken
    queue.dep_push(LOAD, COMPUTE)  # a load of nothing takes no push
    queue.dep_pop(LOAD, COMPUTE)
    queue.dep_pop(LOAD, COMPUTE)  # the first pop becomes a NOP
    queue.alu("relu", lambda r: r.alu(AluOp.MAX, 0, 0, 0))
    queue.dep_push(COMPUTE, STORE)
    queue.dep_push(COMPUTE, LOAD)
    queue.dep_pop(COMPUTE, STORE)
    queue.store_buffer_2d(4, buffer, 2, (2, 3), 5)
    queue.dep_push(STORE, COMPUTE)
    queue.dep_push(STORE, COMPUTE)  # a store of nothing does take a push
    assert listing(queue.synchronize()) == [
        "LOAD INP y2 x3/5 sram=0x7 dram=0x400101 push_next",
        "NOP-LOAD-STAGE push_next",
        "NOP-LOAD-STAGE push_next",
        "NOP-COMPUTE-STAGE pop_prev",
        "LOAD UOP y1 x1/1 sram=0x0 dram=0x400 pop_prev",
        "ALU max imm 0 uops[0,1) 1 x 1 push_prev push_next",
        "STORE OUT y2 x3/5 sram=0x4 dram=0x400102 pop_prev push_prev",
        "NOP-STORE-STAGE push_prev",
        "NOP-STORE-STAGE push_prev",
        "NOP-LOAD-STAGE push_next",
        "NOP-COMPUTE-STAGE pop_prev pop_next",
        "FINISH",
    ]


def recorded(record: Callable[[KernelRecorder], None]) -> UopKernel:
    recorder = KernelRecorder(Device().config)
    record(recorder)
    return recorder.finish()


def test_loops_become_fields() -> None:
    def text(loops: int, push: Callable[[KernelRecorder], None]) -> str:
        def record(r: KernelRecorder) -> None:
            for k in range(loops):
                r.loop(3 + k, 10 + k, 20 + k, 30 + k)
            push(r)

        return disassemble([Instruction(recorded(record).instruction(5))]).split(maxsplit=1)[1]

    outer, inner = "3(dst+10 src+20 wgt+30)", "4(dst+11 src+21 wgt+31)"
    assert [text(n, lambda r: r.gemm(1, 2, 3)) for n in range(3)] == [
        f"GEMM uops[5,6) {x}" for x in ("1 x 1", f"{outer} x 1", f"{outer} x {inner}")
    ]
    outer, inner = "3(dst+10 src+20)", "4(dst+11 src+21)"
    assert [text(n, lambda r: r.alu(AluOp.ADD, 1, 2)) for n in range(3)] == [
        f"ALU add acc uops[5,6) {x}" for x in ("1 x 1", f"1 x {outer}", f"{outer} x {inner}")
    ]


def push_three(r: KernelRecorder, *dst: int) -> None:
    for d in dst:
        r.gemm(d, 0, 0)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (lambda r: None, "it has no micro-op"),
        (lambda r: push_three(r, 1, 1), "one of the 2 before it wrote, got dst=1"),
        (lambda r: push_three(r, 1, 2, 1), r"one of the 2 before it wrote, got dst=1 before=\[1, 2\]"),
        (lambda r: (r.gemm(0, 0, 0), r.gemm(1, 0, 0, reset=True)), "every micro-op must do the same operation"),
        (lambda r: (r.alu(AluOp.MAX, 0, 0, 1), r.alu(AluOp.MAX, 1, 0, 2)), "every micro-op must do the same"),
        (lambda r: (r.gemm(0, 0, 0), r.loop(2, 0, 0)), "a loop must come before the first micro-op"),
        (lambda r: [r.loop(2, 0, 0) for _ in range(3)], "the machine has 2 loops, got loops=3"),
        (lambda r: r.loop(0, 0, 0), "a loop needs a positive extent"),
        (lambda r: [r.gemm(k % 3, 0, 0) for k in range(8193)], "it may have 8192 micro-ops at most"),
    ],
)
def test_what_is_no_kernel(record: Callable[[KernelRecorder], None], message: str) -> None:
    with pytest.raises(QueueError, match=message):
        recorded(record)


def test_what_the_queue_refuses() -> None:
    queue = CommandQueue(Device())
    buffer = queue.device.dram.alloc(64)
    for call in (queue.dep_push, queue.dep_pop):
        with pytest.raises(QueueError, match=r"load->store: no tokens pass between these modules"):
            call(LOAD, STORE)
    with pytest.raises(QueueError, match="the memory must be INP, WGT, ACC or ACC_8BIT"):
        queue.load_buffer_2d(buffer, 0, (1, 1), 1, 0, Memory.OUT)
    queue.gemm("k", lambda r: r.gemm(0, 0, 0))
    with pytest.raises(QueueError, match="kernel 'k': the kernel must be one of mode AluMode"):
        queue.alu("k", lambda r: r.alu(AluOp.MAX, 0, 0))


def kernel_of(size: int, src: int) -> Callable[[KernelRecorder], None]:
    return lambda r: [r.gemm(k, src, 0) for k in range(size)] and None


def test_kernels_are_loaded_once_a_launch() -> None:
    queue = CommandQueue(Device())
    made = []
    for _ in range(2):
        for _ in range(3):
            queue.gemm("k", lambda r: (made.append(1), r.gemm(0, 0, 0))[1])
        loads = [line for line in listing(queue.synchronize()) if line.startswith("LOAD UOP")]
        assert loads == ["LOAD UOP y1 x1/1 sram=0x0 dram=0x400"]
    assert made == [1]


def test_a_full_micro_op_memory_begins_anew() -> None:
    """What is overwritten is loaded again, and earlier loads still find their micro-ops."""
    device = Device()
    queue = CommandQueue(device)
    rng = np.random.default_rng(0)
    device.sram.inp[...] = rng.integers(-128, 128, device.sram.inp.shape)
    device.sram.wgt[...] = rng.integers(-128, 128, device.sram.wgt.shape)
    sizes = {"a": 2000, "b": 2048, "c": 2047, "d": 2000, "e": 300}
    use = ["a", "b", "c", "d", "a", "e", "b", "c", "a", "d"]
    expected = np.zeros_like(device.sram.acc)
    for name in use:
        k = "abcde".index(name)
        queue.gemm(name, kernel_of(sizes[name], k))
        expected[: sizes[name], 0] += (device.sram.wgt[0] @ device.sram.inp[k, 0]).astype(np.int32)
    program = [i.op for i in queue.program]
    loads = [(op.sram_base, op.dram_base - 0x400, op.x_size) for op in program if isinstance(op, Load)]
    assert loads[:5] == [(0, 0, 2000), (2000, 2000, 2048), (4048, 4048, 2047), (6095, 6095, 2000), (0, 8095, 300)]
    assert [size for _, _, size in loads[5:]] == [2000] and sum(isinstance(op, Gemm) for op in program) == len(use)
    queue.synchronize()
    np.testing.assert_array_equal(device.sram.acc, expected)


def test_the_cache_forgets_what_it_overwrites() -> None:
    cache = UopCache(10)
    kernels = [recorded(kernel_of(size, 0)) for size in (4, 4, 3, 2)]
    places = [cache.insert(k, kernel) for k, kernel in enumerate(kernels)]
    assert places == [(0, 0), (4, 4), (0, 8), (3, 11)]
    assert [cache.find(k) for k in range(4)] == [None, None, 0, 3] and len(cache.image()) == cache.logged == 13
    cache.clear()
    assert cache.find(2) is None and len(cache.image()) == 0


def test_many_micro_ops_are_launched_in_parts() -> None:
    device = Device()
    queue = CommandQueue(device, max_transfer=1024)
    for k in range(3):
        queue.gemm(k, kernel_of(100, k))
    found = [op.dram_base - 0x400 for i in queue.program if isinstance(op := i.op, Load) and op.x_size]
    assert found == [0] and device.counters.gemm_counter == 200


@pytest.mark.parametrize("limit", [512, 1024])
def test_a_long_program_is_launched_in_parts(limit: int) -> None:
    device = Device()
    program = ConvProgram(device, Layer(8, 32, 64, 3, 1, 1), tiles_of(4, 8, 1, 2, 2, 1))
    expected = program.fill(np.random.default_rng(0))
    program.queue = CommandQueue(device, max_transfer=limit)
    launches = []
    real = device.launch
    device.launch = lambda *args: launches.append(real(*args)) or launches[-1]  # type: ignore[method-assign,func-returns-value]
    program.run()
    assert len(launches) > 1 and all(len(launch.order) * 16 <= limit for launch in launches)
    np.testing.assert_array_equal(program.result(), expected)
