"""What the analytical models know of a machine: figures of vendor documents, in base units.

Sources (NVIDIA): Tesla V100 whitepaper (WP-08608) and data sheet; Turing whitepaper (WP-09183) and T4 data sheet;
A100 whitepaper and data sheet (SXM4 40GB); Hopper whitepaper and H100 data sheet (SXM5 80GB); H200 data sheet; GA102
whitepaper (RTX 3090); Ada whitepaper (RTX 4090); the table of compute capabilities in the CUDA C++ programming guide
for threads, blocks, registers and shared memory of a multiprocessor.  L2 bytes per clock are published for V100 and
A100 (A100 whitepaper: 2,048 and 5,120); the others are taken as one 64-byte request per clock for every two
multiprocessors (T4, RTX), or as A100's (Hopper).  Operations on tensor cores are those of the same papers but for
Hopper, whose papers count `wgmma`: there `mma.sync` does five eighths (646 TFLOP/s on halves, measured on an H200).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from te_lite.errors import require
from te_lite.loops.register_tile import VectorUnit

from ..core.errors import TaskError
from ..core.host.process import VECTOR_BYTES, host_family, second_cache_bytes
from ..core.target.hardware import HardwareParams, names_processor
from ..core.target.registry import entry_of, search_parts
from ..core.target.target import Target
from ..space.programs import Programs

KiB, MiB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class GPU:
    """A GPU.  `clock` is the boost clock in Hz; `lanes` are fp32 multiply-adds per multiprocessor and clock.

    `dram` is bytes per second; `l2_per_clock` bytes per clock of the whole chip; `l1` the bytes of a multiprocessor
    that are divided between the L1 cache and shared memory, `shared` the most that shared memory can have of it.
    `tensor` are operations on halves, summed up in float32, that a multiprocessor does per clock by `mma.sync`, and
    `groups` those that it does by `wgmma`, where it has that.
    """

    name: str
    multiprocessors: int
    clock: float
    lanes: int
    dram: float
    l2: int
    l2_per_clock: int
    l1: int
    shared: int
    tensor: int
    threads: int = 2048
    blocks: int = 32
    registers: int = 65536
    warp: int = 32
    schedulers: int = 4
    groups: int = 0

    @property
    def flops(self) -> float:
        """Peak fp32 operations per second."""
        return 2.0 * self.multiprocessors * self.lanes * self.clock


@dataclass(frozen=True)
class Cache:
    """`size` bytes in sets of `ways` lines."""

    size: int
    ways: int

    @property
    def way(self) -> int:
        """Bytes after which addresses fall into the same set again."""
        return self.size // self.ways


@dataclass(frozen=True)
class CPU:
    """A CPU.  `ports` vector multiply-adds per clock; the defaults are those of a common server (AMD Zen 5).

    `masks` says that vectors can be used in part, `vectorizes` that the compiler makes vectors of straight loops that
    nobody asked it to, as LLVM does.
    `l2_per_clock` and `l3_per_clock` are bytes per clock and core that last; `dram` bytes per second in all.
    """

    name: str
    cores: int
    clock: float
    vector: int
    line: int
    ports: int = 2
    registers: int = 32
    l1: Cache = Cache(48 * KiB, 12)
    l2: Cache = Cache(1 * MiB, 16)
    l3: Cache = Cache(16 * MiB, 16)
    l2_per_clock: float = 32.0
    l3_per_clock: float = 8.0
    dram: float = 20e9
    masks: bool = True
    vectorizes: bool = False
    packs: bool = False

    @property
    def unit(self) -> VectorUnit:
        """Its vectors."""
        return VectorUnit(self.vector, self.registers, self.masks)

    @property
    def flops(self) -> float:
        """Peak fp32 operations per second."""
        return 2.0 * self.cores * self.ports * (self.vector / 4) * self.clock


class EstimatesItself(Protocol):
    """A machine of a kind of its own, which estimates programs by itself.

    `flops` are operations and `dram` bytes per second, at best.
    """

    @property
    def name(self) -> str: ...

    @property
    def flops(self) -> float: ...

    @property
    def dram(self) -> float: ...

    def seconds(self, programs: Programs) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The run time of each program, in seconds: float64 [programs.n]."""


Machine = GPU | CPU | EstimatesItself

GPUS: dict[str, GPU] = {
    gpu.name: gpu
    for gpu in (
        GPU("V100", 80, 1.530e9, 64, 900e9, 6 * MiB, 2048, 128 * KiB, 96 * KiB, 1024),
        GPU("T4", 40, 1.590e9, 64, 320e9, 4 * MiB, 1280, 96 * KiB, 64 * KiB, 1024, threads=1024, blocks=16),
        GPU("A100", 108, 1.410e9, 64, 1555e9, 40 * MiB, 5120, 192 * KiB, 164 * KiB, 2048),
        GPU("H100", 132, 1.980e9, 128, 3350e9, 50 * MiB, 5120, 256 * KiB, 228 * KiB, 2560, groups=4096),
        GPU("H200", 132, 1.980e9, 128, 4800e9, 50 * MiB, 5120, 256 * KiB, 228 * KiB, 2560, groups=4096),
        GPU("RTX3090", 82, 1.695e9, 128, 936e9, 6 * MiB, 2624, 128 * KiB, 100 * KiB, 512, threads=1536, blocks=16),
        GPU("RTX4090", 128, 2.520e9, 128, 1008e9, 72 * MiB, 4096, 128 * KiB, 100 * KiB, 512, threads=1536, blocks=24),
    )
}

ARCHITECTURES = {
    "sm_70": "V100", "sm_75": "T4", "sm_80": "A100", "sm_86": "RTX3090", "sm_89": "RTX4090", "sm_90": "H200",
}  # fmt: skip
DEFAULT_GPU = "H200"
CPU_CLOCK = 2.5e9
"""Hz; a server's clock under vector load.  Only absolute times depend on it."""
L3_OF_CORE, DRAM_OF_CORE = 2 * MiB, 5e9
"""Bytes of the last cache, and bytes per second of memory, that servers have for each core (Ice Lake to Zen 5)."""


def machine_of(target: Target | str, hardware: HardwareParams) -> Machine:
    """The machine that a target means: `-model=H200` or `h200`, else the best known one of `-arch=sm_90`, else an H200.

    A kind that was registered with a machine has that.  A CPU is generic: cores and vector bytes are those of
    `hardware`, caches those of its generation (Zen 2 and 3 for vectors of AVX2); but if it may be this one, the
    second-level cache is as large as here: 1 MiB or 2 with the same vectors.
    Raises TaskError for a target that no model describes, and for one that names an unknown model.
    """
    target = Target.of(target)
    entry = entry_of(target.kind.name)
    if entry.machine is not None:
        made: Machine = entry.machine
        return made
    parts = search_parts(target.kind.name)
    if parts is not None:
        made = parts.machine(target)
        return made
    match entry.family:
        case "c":
            unit = VectorUnit.of(hardware.vector_unit_bytes)
            made = _generic(unit, max(1, hardware.num_cores))
            here = not names_processor(target) and unit.bytes == VECTOR_BYTES[host_family()]
            size = second_cache_bytes() if here else None
            return made if size is None else replace(made, l2=replace(made.l2, size=size))
        case "cuda":
            model = target.model or ARCHITECTURES.get(target.attrs.get("arch", ""), DEFAULT_GPU)
            law = f"no figures are known, known models are {', '.join(GPUS)}"
            require(model in GPUS, TaskError, f"target {target.text!r}, model {model!r}", law)
            return GPUS[model]
    raise TaskError(f"target {target.text!r}: there is no analytical model, only for c and cuda")


def _generic(unit: VectorUnit, cores: int) -> CPU:
    """A processor of so many cores; what these share grows with them."""
    new = CPU("generic", cores, CPU_CLOCK, unit.bytes, 64, registers=unit.registers, masks=unit.masks)
    new = replace(new, l3=Cache(max(new.l3.size, L3_OF_CORE * cores), 16), dram=max(new.dram, DRAM_OF_CORE * cores))
    return new if unit.masks else replace(new, l1=Cache(32 * KiB, 8), l2=Cache(512 * KiB, 8))
