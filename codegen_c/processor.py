"""Processors as the emitter knows them: this one, or the one that a target names.

The compiler knows what a processor of a name can do, and says so by its macros: they decide how long vectors are,
and whether this processor can run such programs at all.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from ansor.core.errors import GraphError
from ansor.core.host.process import VECTOR_BYTES, cpu_flags, host_family
from ansor.core.values.json_values import items, text
from te_lite import environment
from te_lite.errors import require
from te_lite.loops.register_tile import VectorUnit

from .compile import FLAGS, asked, compiler_command
from .errors import CompileError

# ------------------------------------------------------------------------------------------------------- this processor


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


_INSTRUCTIONS = (
    "sse", "ssse", "avx", "fma", "f16c", "bmi", "popcnt", "lzcnt", "amx", "vaes", "vpclmul", "gfni", "movbe", "adx",
    "arm_neon", "arm_feature",
)  # fmt: skip
"""How the names of instruction sets begin, as /proc/cpuinfo has them and as macros of compilers (`__AVX2__`)."""


def machine_facts() -> dict[str, Any]:
    """What machine code that is compiled here was made for, as JSON; instruction sets by the names of /proc/cpuinfo."""
    instructions = sorted(flag for flag in cpu_flags() if flag.startswith(_INSTRUCTIONS))
    return {"system": platform.system(), "machine": platform.machine(), "instructions": instructions}


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


# -------------------------------------------------------------------------------------------- the processor of a target


NATIVE = "-march=native"
_FAMILIES = {
    "avx512vl": "__AVX512VL__", "avx512": "__AVX512F__", "avx2": "__AVX2__", "neon": "__ARM_NEON",
}  # fmt: skip


def processor_flag(target: str) -> str:
    """What the compiler is told of the processor.  `-march` goes before `-mcpu`, which on x86 means the same.

    `target` is the text of a target of any kind that this backend serves.
    """
    named = dict([word.lstrip("-").partition("=")[::2] for word in target.split()[1:]])
    if "march" in named:
        return f"-march={named['march']}"
    if "mcpu" in named:
        return f"-m{'cpu' if platform.machine() in ('aarch64', 'arm64') else 'arch'}={named['mcpu']}"
    return NATIVE


def flags_for(target: str, flags: Sequence[str] = FLAGS) -> tuple[str, ...]:
    """The flags of the compiler, for programs of a target."""
    return tuple([processor_flag(target) if flag == NATIVE else flag for flag in flags])


def options_for(target: str) -> Options:
    """How programs of a target are written.  Raises as `check_processor` does."""
    flag = processor_flag(target)
    if flag == NATIVE:
        return host_options()
    check_processor(target)
    macros = macros_of(compiler_command(), flag)
    family = next((family for family, macro in _FAMILIES.items() if macro in macros), "sse")
    return replace(PROCESSORS[family], num_threads=host_options().num_threads)


def check_processor(target: str) -> None:
    """Raises CompileError for a processor that the compiler does not know, or whose programs cannot run on this one."""
    flag, command = processor_flag(target), compiler_command()
    if flag == NATIVE:
        return
    missing = _instructions(macros_of(command, flag)) - _instructions(macros_of(command, NATIVE))
    law = "this processor lacks instructions of the one that the target names"
    require(not missing, CompileError, f"target {target!r}", law, missing=", ".join(sorted(missing)[:8]))


def _instructions(macros: frozenset[str]) -> set[str]:
    return {macro for macro in macros if macro.startswith("__") and macro[2:].lower().startswith(_INSTRUCTIONS)}


@lru_cache(maxsize=32)
def macros_of(command: tuple[str, ...], flag: str) -> frozenset[str]:
    """The macros that the compiler defines for a processor.  Raises CompileError for one that it does not know."""
    done = asked(command, flag, "-dM", "-E", "-x", "c", "/dev/null")
    said = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
    require(done.code == 0, CompileError, "C compiler", f"does not know the processor: {said}", flag=flag)
    return frozenset(line.split()[1].split("(")[0] for line in done.stdout.splitlines() if line.startswith("#define "))
