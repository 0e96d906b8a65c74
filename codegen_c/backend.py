"""The backend of target `c`: source text, built programs, and timed runs of them.

A built program is a directory with `program.c`, `program.so` and `program.json` (its entry point and arguments); one
for other machines has a text for each family of processors instead, and no library.  Programs run on the processor
that compiles them, so the search never does both at once.
"""

from __future__ import annotations

import ctypes
import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ansor.core.device.backend import Backend
from ansor.core.device.nd import aligned_empty
from ansor.core.host.process import host_family
from ansor.core.target.hardware import HardwareParams, host_cores, processor
from ansor.core.values.checks import counted
from te_lite.errors import require
from te_lite.later import when_called
from te_lite.loops.stmt import LoweredFunc

from . import caches
from .compile import FLAGS, compiler_command, compiler_version, library_path
from .emit import emit, entry_name
from .errors import CallError, CompileError
from .module import build
from .openmp import open_library
from .processor import NATIVE, PROCESSORS, check_processor, flags_for, options_for, processor_flag
from .timing import costs

Array = np.ndarray[Any, np.dtype[Any]]
SOURCE, LIBRARY = "program.c", "program.so"
exporter = when_called("codegen_c.export", "CExporter")
networks = when_called("codegen_c.network", "CNetworkBackend")
HOPELESS = 3.0
COLD_SECONDS = 5e-3
"""How much longer the first call of a loaded program takes than later ones, usually: threads start, pages are new."""


class CProgram:
    """A loaded library; arguments are aligned NumPy arrays in the order of the program's arguments."""

    def __init__(self, directory: Path) -> None:
        facts = json.loads((directory / "program.json").read_text())
        library = open_library(directory / LIBRARY)
        pointers = [ctypes.c_void_p] * int(facts["arguments"])
        self._seconds = library[f"{facts['entry']}_seconds"]
        self._seconds.restype, self._seconds.argtypes = ctypes.c_double, [ctypes.c_int64, *pointers]

        self._last = math.inf

    def run(self, args: Sequence[Array]) -> None:
        """Run once."""
        self._last = self._once(1, args, False)

    def time(
        self, args: Sequence[Array], number: int, repeat: int, min_repeat_ms: int, flush: bool, best: float
    ) -> list[float]:
        """Seconds per call, `repeat` timings.

        Each is the median of a few means, of `number` calls together at least that last `min_repeat_ms` (`timing.py`).
        With `flush` only the first argument is in the caches before each timing (`caches.py`).  Where the last
        run took more than `HOPELESS` times `best`, and another call does so too, this call is all timings.
        """
        if self._last - COLD_SECONDS > HOPELESS * best and (again := self._once(1, args, flush)) > HOPELESS * best:
            return [again] * repeat
        return costs(lambda calls: self._once(calls, args, flush), number, repeat, min_repeat_ms)

    def _once(self, number: int, args: Sequence[Array], flush: bool) -> float:
        if flush and args:
            caches.flush(args[0].ctypes.data, args[0].nbytes)
        return float(self._seconds(number, *[a.ctypes.data for a in args]))


class CDevice:
    """The processor of this machine; its arrays are NumPy arrays that start at a multiple of 64 bytes."""

    def put(self, array: Array) -> Array:
        """An aligned copy."""
        handle = aligned_empty(array.shape, array.dtype)
        handle[...] = array
        return handle

    def write(self, handle: Array, array: Array) -> None:
        """Overwrite an array."""
        handle[...] = array

    def get(self, handle: Array) -> Array:
        """The array itself."""
        return handle

    def load(self, directory: str) -> CProgram:
        """Load a built program; one that came from another machine as text is compiled here first."""
        place = Path(directory)
        if not (place / LIBRARY).exists():
            _compile(place, _text_for_this_processor(place))
        return CProgram(place)


def _text_for_this_processor(place: Path) -> str:
    """The name of the file.  Raises CompileError when there is only text for processors of another family."""
    own = f"program.{host_family()}.c"
    if (place / own).exists():
        return own
    family = json.loads((place / "program.json").read_text())["family"]
    law = f"was written for another processor than this, which is {host_family()}; use the runner's own builder"
    require(family == host_family(), CompileError, "the program", law, family=family)
    return SOURCE


def _compile(place: Path, name: str, flags: Sequence[str] = FLAGS) -> None:
    """Make the library of a program from its text.  Raises CompileError."""
    shutil.copyfile(library_path((place / name).read_text(), flags=flags), place / LIBRARY)


def _write_facts(func: LoweredFunc, place: Path) -> None:
    facts = {"entry": entry_name(func), "arguments": len(func.args), "family": host_family()}
    (place / "program.json").write_text(json.dumps(facts))


class CBackend(Backend):
    """Target `c` (see `ansor.core.device.backend.Backend`)."""

    kind = "c"
    shares_host = True
    host_files = (LIBRARY,)

    @cached_property
    def exports(self) -> Any:
        """See `Backend`; searches need neither."""
        return exporter()

    @cached_property
    def networks(self) -> Any:
        """See `Backend`."""
        return networks()

    def check(self, target: str) -> None:
        """Raises CompileError when there is no C compiler, and for a processor whose programs this one cannot run."""
        compiler_version(compiler_command())
        check_processor(target)

    def source(self, func: LoweredFunc, target: str) -> str:
        """The C text.  Raises EmitError for programs with thread blocks."""
        return emit(func, options=options_for(target))

    def build(self, func: LoweredFunc, target: str, directory: str) -> None:
        """Compile into `directory`.  Raises EmitError or CompileError."""
        place = Path(directory)
        (place / SOURCE).write_text(emit(func, options=options_for(target)))
        _compile(place, SOURCE, flags_for(target))
        _write_facts(func, place)

    def hardware(self, target: str) -> HardwareParams:
        """The usual numbers, with the vectors that programs are written with, here or for the processor of `target`."""
        return replace(HardwareParams.for_target(target), vector_unit_bytes=options_for(target).vector_bytes)

    def described_device(self, target: str, index: int = 0) -> str:
        """The processor, the threads and vectors of programs, and the processor that the target names."""
        options, flag = options_for(target), processor_flag(target)
        threads = counted(options.num_threads or host_cores(), "thread")
        text = f"{processor()}, {threads}, vectors of {options.vector_bytes} bytes"
        return text if flag == NATIVE else f"{text}, {flag}"

    def described_compiler(self, target: str) -> str:
        """The first line of what the compiler says of itself.  Raises CompileError when there is none."""
        return compiler_version(compiler_command()).splitlines()[0]

    def check_portable(self, target: str) -> None:
        """Text can be written everywhere, but for no other processor than that where it is compiled."""
        law = "programs for other machines are compiled for the processors that are there, leave it out"
        flag = processor_flag(target)
        require(flag == NATIVE, CompileError, f"target {target!r}", law, option=flag)

    def build_portable(self, func: LoweredFunc, target: str, directory: str) -> None:
        """Only text, for each family of processors; it is compiled where it runs.  Raises EmitError."""
        place = Path(directory)
        for family, options in PROCESSORS.items():
            (place / f"program.{family}.c").write_text(emit(func, options=options))
        _write_facts(func, place)

    def open(self, index: int) -> CDevice:
        """The processor; there is one."""
        require(index == 0, CallError, "target 'c'", "the only device is number 0", device=index)
        return CDevice()

    def report(self) -> list[tuple[str, bool, str]]:
        """The C compiler, its version and whether it compiles."""
        try:
            command = compiler_command()
            version = compiler_version(command).splitlines()[0]
            library_path("int answer(void) { return 42; }\n")
        except CompileError as error:
            return [("C compiler", False, str(error))]
        return [("C compiler", True, f"{' '.join(command)}: {version}")]

    def module(self, func: LoweredFunc, target: str) -> Callable[..., Any]:
        """A function of NumPy arrays, see `codegen_c.Module`."""
        return build(func, options=options_for(target), flags=flags_for(target))


BACKEND = CBackend()
