"""The block emulator: emitted CUDA kernels on the CPU, with what they do wrong.

The very same source is compiled as host C++ and run block by block, or cluster of blocks by cluster, threads as fibers.
Results are exact up to the host's arithmetic; accesses out of bounds, races, reads of what nothing wrote, misaligned
vectors, barriers that only some threads reach and divisions by zero are findings.  Asynchronous copies arrive when
their thread waits for them, no earlier; so do those of the copy engine (`copy_engine.h`).  A kernel runs in a process
of its own.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from ansor.core.files.private_files import scratch_folder
from te_lite.errors import require
from te_lite.extensions import required_part
from te_lite.loops.names import identifier

from ..program.cuda_program import CudaProgram
from . import emulator_build as build
from .emulated_maps import map_of
from .emulator_report import EmulatorError, Report, read_answer

Shape = tuple[int, ...]
Argument = np.ndarray | np.generic
MAX_THREADS = 1024


@dataclass(frozen=True)
class Launch:
    """One kernel launch; `arguments` are positions in the memories of the run."""

    kernel: str
    grid: Shape
    block: Shape
    arguments: tuple[int, ...]
    dynamic_bytes: int


@dataclass(frozen=True, eq=False)
class Memory:
    """An array that kernels see, or a NumPy scalar that is passed by value; `ready` arrays hold values at the start."""

    name: str
    value: Argument
    ready: bool


def run(
    source: CudaProgram | str,
    kernel: str,
    grid: int | Shape,
    block: int | Shape,
    args: Sequence[Argument],
    dynamic_shared_bytes: int = 0,
    check: bool = True,
    timeout: float = 120.0,
) -> Report:
    """Launch one kernel on arrays, which it changes in place; NumPy scalars are passed by value.

    `check=False` leaves out all looking at memory accesses.  `timeout` is in seconds.
    Raises EmulatorError with the findings, without g++, and when the source or the arguments do not fit.
    """
    text = source if isinstance(source, str) else source.source
    memories = [Memory(f"argument_{i}", a, True) for i, a in enumerate(args)]
    launch = Launch(kernel, _three(grid), _three(block), tuple(range(len(args))), dynamic_shared_bytes)
    return run_launches(text, [launch], memories, check, timeout)


def run_program(program: CudaProgram, args: Sequence[np.ndarray], check: bool = True, timeout: float = 120.0) -> Report:
    """Run all kernels of `program` in order on arrays for `program.args`, which they change in place.

    Scratch memory starts poisoned, and reading what no kernel wrote there is a finding.  Raises EmulatorError.
    """
    require(len(args) == len(program.args), EmulatorError, program.name, "one array per argument", arrays=len(args))
    program, sizes = required_part("at_sizes")(program, args, EmulatorError) if program.sizes else (program, ())
    for buffer, array in zip(program.args, args, strict=True):
        fits = array.dtype == buffer.dtype and array.size == buffer.size
        require(fits, EmulatorError, buffer.name, "an array of the buffer's dtype and size",
                dtype=str(array.dtype), size=array.size)  # fmt: skip
    memories = [Memory(b.name, a, True) for b, a in zip(program.args, args, strict=True)]
    poisoned = [np.full(b.size * np.dtype(b.dtype).itemsize, 255, np.uint8).view(b.dtype) for b in program.scratch]
    memories += [Memory(b.name, x, False) for b, x in zip(program.scratch, poisoned, strict=True)]
    launches, last = [], range(len(memories), len(memories) + len(sizes))
    memories += [Memory("size", np.int32(n), True) for n in sizes]
    for k in program.kernels:
        numbers = range(len(memories), len(memories) + len(k.maps))
        memories += [Memory("map", map_of(m, m.argument), True) for m in k.maps]
        launches.append(Launch(k.name, k.grid, k.block, (*numbers, *k.arguments, *last), k.dynamic_bytes))
    return run_launches(program.source, launches, memories, check, timeout)


def _three(shape: int | Shape) -> Shape:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    return (*sizes, 1, 1)[:3]


def run_launches(
    source: str, launches: Sequence[Launch], memories: Sequence[Memory], check: bool, timeout: float
) -> Report:
    """Run launches of kernels of `source` in order on memories, which they change in place; see `run`."""
    for launch in launches:
        fits = 1 <= prod(launch.block) <= MAX_THREADS
        require(fits, EmulatorError, launch.kernel, "1 to 1024 threads a block", block=launch.block)
    kernels = tuple(dict.fromkeys(launch.kernel for launch in launches))
    library = build.library(source, kernels, max(launch.dynamic_bytes for launch in launches), check)
    with scratch_folder("emulation") as directory:
        job = Path(directory) / "job"
        job.write_text("\n".join(_job(library, launches, memories, Path(directory))))
        try:
            return _answer(library, job, timeout, time.perf_counter())
        finally:
            _read_back(memories, Path(directory))


def _answer(library: build.Library, job: Path, timeout: float, start: float) -> Report:
    done = build.finished([str(build.host()), str(job)], timeout, "the run of the kernels")
    accesses = read_answer(done.stdout, partial(build.source_lines, library.path))
    return Report(accesses, time.perf_counter() - start)


def _job(library: build.Library, launches: Sequence[Launch], memories: Sequence[Memory], directory: Path) -> list[str]:
    """The lines of the job that the host reads; arrays are written to files beside it."""
    job = [f"library {library.path}"]
    job += [f"shared {a.name} {a.offset} {a.nbytes} {a.alignment} {library.granule}" for a in library.arrays]
    words, counts = [], {"b": 0, "v": 0}
    for i, memory in enumerate(memories):
        kind = "b" if isinstance(memory.value, np.ndarray) else "v"
        job.append(_given(memory, directory / str(i)))
        words.append(f"{kind}{counts[kind]}")
        counts[kind] += 1
    for launch in launches:
        sizes = [*launch.grid, *launch.block, launch.dynamic_bytes]
        job.append(f"launch {launch.kernel} {' '.join(map(str, sizes))} {' '.join(words[i] for i in launch.arguments)}")
    return [*job, ""]


def _given(memory: Memory, place: Path) -> str:
    """The line of the job for an argument; an array is written to the file `place`."""
    value = memory.value
    if not isinstance(value, np.ndarray):
        return f"value {int.from_bytes(value.tobytes(), 'little'):x}"
    place.write_bytes(value.tobytes())
    return f"buffer {identifier(memory.name)} {place} {value.nbytes} {value.itemsize} {int(memory.ready)}"


def _read_back(memories: Sequence[Memory], directory: Path) -> None:
    for i, memory in enumerate(memories):
        if isinstance(memory.value, np.ndarray) and memory.value.flags.writeable:
            memory.value[...] = np.fromfile(directory / f"{i}", memory.value.dtype).reshape(memory.value.shape)
