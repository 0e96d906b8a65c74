"""Networks of programs for all sizes: compiled once; the plan and the sizes of a run are tables that it is given.

The library of a network of numbers has its plan inside (codegen_c/library.py).  Here each kernel is called with its
sizes behind its pointers, and which kernels run on what is read from arrays of int64 that a plan becomes for the sizes
of a run:

    steps     kernel, first place, number of places, first of its sizes
    places    storage, or -1 for the arena; the byte in it
    numbers   sizes
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ansor.core.device.network_backend import CompiledNetwork
from ansor.core.device.network_memory import HostMemory
from ansor.core.device.network_plan import ExecutionPlan, KernelCode
from ansor.core.errors import GraphError
from ansor.core.target.target import Target
from ansor.core.tasks.task import SearchTask
from ansor.policy.default_schedule import default_states
from ansor.records.validation import is_program
from codegen_c.compile import object_code
from codegen_c.emit import emit, timer_text
from codegen_c.library import RUN, SECONDS, hoist_scratch, library_file, link
from codegen_c.network import CNetworkBackend
from codegen_c.openmp import open_library
from codegen_c.processor import options_for
from te_lite.errors import require
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import SizeVar
from te_lite.loops.stmt import LoweredFunc
from te_lite.schedule.dag import ComputeDAG
from te_lite.schedule.replay import replay
from te_lite.schedule.state import State
from te_lite.verify.verify import PROVEN, verify

from .sized import sized
from .sizes import Sizes

_TABLES = "const int64_t *steps, const int64_t *places, const int64_t *numbers, unsigned char *arena, void *const *data"
_STEPS = f"int64_t first, int64_t last, {_TABLES}"


@dataclass(frozen=True)
class OpenKernel:
    """A kernel: its code, how many pointers it takes, and the sizes behind these."""

    code: KernelCode
    pointers: int
    sizes: tuple[SizeVar, ...]


class OpenNetworks:
    """What compiles networks with open extents, on targets of kind `c`, and runs them."""

    def __init__(self, target: Target | str) -> None:
        self.target = Target.of(target)
        law = "networks with open extents are compiled for target c"
        require(self.target.kind.name == "c", GraphError, "build", law, target=str(target))
        self.backend = CNetworkBackend()

    def default_state(self, dag: ComputeDAG) -> State:
        """The first default program of a computation at its greatest sizes that is one for all sizes, too.

        There time is spent; tiles of smaller sizes have odd numbers of elements, and cost up to half of it again.
        """
        if not dag.sizes:
            return next(default_states(SearchTask(compute_dag=dag, target=self.target)))
        greatest = {v: v.range[1] for v in dag.sizes}
        fixed = SearchTask(compute_dag=sized(dag, greatest), target=self.target)
        steps = (state.steps for state in default_states(fixed))
        return replay(dag, next((x for x in steps if is_program(dag, x)), ()))

    def kernel(self, func: LoweredFunc) -> OpenKernel:
        """A kernel as source, to which the caller gives large scratch arrays.  Raises EmitError."""
        options = options_for(str(self.target))
        verify(func)
        whole, scratch = hoist_scratch(func, options)
        PROVEN.add(whole)  # its arrays are those of `func`, which are had elsewhere
        nbytes = tuple([b.size * BYTES[b.dtype] for b in scratch])
        return OpenKernel(KernelCode(func.name, emit(whole, func.name, options), nbytes), len(whole.args), func.sizes)

    def machine_code(self, code: KernelCode) -> bytes:
        """A kernel compiled; threads may do so side by side.  Raises CompileError."""
        return self.backend.compile(None, code, str(self.target))

    def library(self, kernels: Sequence[OpenKernel], compiled: Mapping[str, bytes]) -> tuple[str, bytes]:
        """The source of what calls the kernels, and the library of all.  Raises CompileError."""
        driver = driver_source(kernels)
        return driver, link({**compiled, "network": object_code(driver, "network")})

    def open(self, library: bytes, kernels: Sequence[OpenKernel], network: CompiledNetwork, sizes: Sizes) -> Any:
        """An executor of a network at some sizes; `sizes` has those of all kernels."""
        return OpenExecutor(library, kernels, network, sizes)


def driver_source(kernels: Sequence[OpenKernel]) -> str:
    """The C source that runs the steps of any plan with these kernels; see the top of this file."""
    lines = ["#include <stdint.h>", "#include <time.h>", ""]
    for k in kernels:
        kinds = ", ".join(["void *"] * k.pointers + ["int64_t"] * len(k.sizes))
        given = ", ".join([*[f"p[{n}]" for n in range(k.pointers)], *[f"n[{n}]" for n in range(len(k.sizes))]])
        lines.append(f"void {k.code.name}({kinds});")
        lines.append(f"static void call_{k.code.name}(void **p, const int64_t *n) {{ {k.code.name}({given}); }}")
    names = ", ".join([f"call_{k.code.name}" for k in kernels])
    lines += [
        "",
        f"static void (*const kernels[])(void **, const int64_t *) = {{{names}}};",
        "",
        f"void {RUN}({_STEPS}) {{",
        f"  void *p[{max([1, *[k.pointers for k in kernels]])}];",
        "  for (const int64_t *s = steps + 4 * first; s < steps + 4 * last; s += 4) {",
        "    for (int64_t k = 0; k < s[2]; ++k) {",
        "      const int64_t *at = places + 2 * (s[1] + k);",
        "      p[k] = (at[0] < 0 ? arena : (unsigned char *)data[at[0]]) + at[1];",
        "    }",
        "    kernels[s[0]](p, numbers + s[3]);",
        "  }",
        "}",
        "",
        timer_text(SECONDS, _STEPS, f"{RUN}(first, last, steps, places, numbers, arena, data)"),
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, eq=False)
class Tables:
    """A plan at some sizes as the driver reads it: int64 [steps, 4], [places, 2] and [numbers]."""

    steps: Any
    places: Any
    numbers: Any

    @staticmethod
    def of(plan: ExecutionPlan, kernels: Sequence[OpenKernel], sizes: Sizes) -> Tables:
        """Raises GraphError for a plan with loops or branches."""
        known = {k.code.name: n for n, k in enumerate(kernels)}
        steps, places, numbers = list[tuple[int, ...]](), list[tuple[int, int]](), list[int]()
        for s in plan.steps:
            plain = s.kernel and not (s.where or s.unless)
            require(plain, GraphError, "plan", "networks with open extents have no loops and branches", step=s)
            steps.append((known[s.kernel], len(places), len(s.storages), len(numbers)))
            found = [plan.place(storage) for storage in s.storages]
            places += [(-1 if whole is None else whole, start) for whole, start in found]
            numbers += [sizes[v] for v in kernels[known[s.kernel]].sizes]
        return Tables(*[np.array(rows, np.int64) for rows in (steps, places, numbers)])


class OpenExecutor(HostMemory):
    """A network at some sizes in the memory of this machine (see `Executor`)."""

    def __init__(self, library: bytes, kernels: Sequence[OpenKernel], network: CompiledNetwork, sizes: Sizes) -> None:
        binary = open_library(library_file(library))
        self._tables = Tables.of(network.plan, kernels, sizes)
        self._run, self._seconds = binary[RUN], binary[SECONDS]
        steps: list[Any] = [ctypes.c_int64] * 2 + [ctypes.c_void_p] * 5
        self._run.restype, self._run.argtypes = None, steps
        self._seconds.restype, self._seconds.argtypes = ctypes.c_double, [ctypes.c_int64, *steps]
        self._pointers = (ctypes.c_void_p * max(network.plan.externals, 1))()
        super().__init__(network)

    def use(self, storage: int, memory: Any) -> None:
        super().use(storage, memory)
        self._pointers[storage] = memory.ctypes.data

    def _given(self, first: int, last: int) -> tuple[Any, ...]:
        tables = [t.ctypes.data for t in (self._tables.steps, self._tables.places, self._tables.numbers)]
        return first, last, *tables, self.arena.ctypes.data, self._pointers

    def run(self, stream: int | None = None) -> None:
        self._run(*self._given(0, len(self.plan.steps)))

    def seconds(self, number: int, first: int = 0, last: int | None = None) -> float:
        end = len(self.plan.steps) if last is None else last
        return float(self._seconds(number, *self._given(first, end)))
