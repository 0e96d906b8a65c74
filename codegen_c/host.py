"""Facts about the processor that the emitter needs: the size of its vectors and how many registers hold them."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ansor.core.errors import GraphError
from ansor.core.host.processor_family import VECTOR_BYTES, cpu_flags, host_family
from ansor.core.values.json_values import items, text
from te_lite import environment
from te_lite.errors import require
from te_lite.loops.register_tile import VectorUnit


@dataclass(frozen=True)
class Options:
    """How a program is written.

    `vector_bytes` is the longest vector; `registers` the number of vectors that accumulators may occupy, and `operands`
    that of the vector registers beside them;
    `max_unrolled` bounds the statements that explicit unrolling may make of one nest; `num_threads` (None: what
    OpenMP decides, see OMP_NUM_THREADS) is the number of threads of a parallel loop; `stack_bytes` the largest
    scratch buffer that lives on the stack; `masks` says that vectors can be read and written in part (AVX-512VL).
    """

    vector_bytes: int = 64
    registers: int = 28
    max_unrolled: int = 512
    num_threads: int | None = None
    stack_bytes: int = 32 * 1024
    masks: bool = False
    operands: int = 4


def _options(unit: VectorUnit) -> Options:
    return Options(vector_bytes=unit.bytes, registers=unit.sums, masks=unit.masks, operands=unit.spare)


PROCESSORS = {
    "avx512vl": _options(VectorUnit.of(VECTOR_BYTES["avx512vl"])),
    "avx512": _options(VectorUnit(VECTOR_BYTES["avx512"], 32)),
    "avx2": _options(VectorUnit.of(VECTOR_BYTES["avx2"])),
    "neon": _options(VectorUnit(VECTOR_BYTES["neon"], 32, spare=8)),
    "sse": _options(VectorUnit.of(VECTOR_BYTES["sse"])),
}
"""The families of processors that programs are written for."""


def host_options() -> Options:
    """The options that suit this processor; `CODEGEN_C_THREADS` sets the number of threads."""
    return replace(PROCESSORS[host_family()], num_threads=environment.CODEGEN_C_THREADS.positive)


_INSTRUCTIONS = ("sse", "ssse", "avx", "fma", "f16c", "bmi", "popcnt", "amx", "vaes", "vpclmul", "gfni", "movbe", "adx")


def instruction_sets() -> list[str]:
    """The instruction sets of this processor that a compiler may use, by the names of /proc/cpuinfo."""
    return sorted(flag for flag in cpu_flags() if flag.startswith(_INSTRUCTIONS))


def machine_facts() -> dict[str, Any]:
    """What machine code that is compiled here was made for, as JSON."""
    return {"system": platform.system(), "machine": platform.machine(), "instructions": instruction_sets()}


def check_machine(subject: str, facts: Mapping[str, Any]) -> None:
    """Raise GraphError when this machine cannot run machine code that was made for `facts`."""
    here = machine_facts()
    for name in ("system", "machine"):
        law = f"was compiled for {facts.get(name)!r}; build it here"
        require(facts.get(name) == here[name], GraphError, subject, law, here=here[name])
    wanted = [text(name, "instructions") for name in items(facts.get("instructions", []), "instructions")]
    missing = sorted(set(wanted) - set(here["instructions"]))
    law = "was compiled for instructions that this processor lacks; build it here"
    require(not missing, GraphError, subject, law, missing=missing)
