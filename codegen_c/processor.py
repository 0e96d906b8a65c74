"""The processor that a target names: `c -march=haswell`, or `-mcpu=haswell` as TVM writes; without either, this one.

The compiler knows what a processor of that name can do, and says so by its macros: they decide how long vectors are,
and whether this processor can run such programs at all.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ansor.core.host.command import ANSWER_SECONDS, Unfinished, run_command
from te_lite.errors import require

from .compile import FLAGS, compiler_command
from .errors import CompileError
from .host import PROCESSORS, Options, host_options

NATIVE = "-march=native"
_FAMILIES = {
    "avx512vl": "__AVX512VL__", "avx512": "__AVX512F__", "avx2": "__AVX2__", "neon": "__ARM_NEON",
}  # fmt: skip
_INSTRUCTIONS = (
    "__SSE", "__SSSE", "__AVX", "__FMA", "__F16C", "__BMI", "__POPCNT", "__LZCNT", "__AMX", "__VAES", "__VPCLMUL",
    "__GFNI", "__MOVBE", "__ADX", "__ARM_NEON", "__ARM_FEATURE",
)  # fmt: skip


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
    return {macro for macro in macros if macro.startswith(_INSTRUCTIONS)}


@lru_cache(maxsize=32)
def macros_of(command: tuple[str, ...], flag: str) -> frozenset[str]:
    """The macros that the compiler defines for a processor.  Raises CompileError for one that it does not know."""
    try:
        done = run_command([*command, flag, "-dM", "-E", "-x", "c", "/dev/null"], ANSWER_SECONDS)
    except Unfinished as e:
        raise CompileError(f"C compiler: {' '.join(command)} {flag} {e}") from e
    said = next((line for line in done.stderr.splitlines() if "error" in line), "no message")
    require(done.code == 0, CompileError, "C compiler", f"does not know the processor: {said}", flag=flag)
    return frozenset(line.split()[1].split("(")[0] for line in done.stdout.splitlines() if line.startswith("#define "))
