"""CUDA C++ to cubins by NVRTC, in this process; no driver and no GPU is needed.

Equal sources are compiled once: the cache's key is the source, the options, the architecture and the compiler's
version.  Several threads compile side by side: NVRTC runs outside Python's lock.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from te_lite.errors import require

from ..program.errors import CompileError
from . import nvrtc
from .cache import kernel_store
from .resources import KernelResources, parse_resources
from .toolkit import include_folders

OPTIONS = ("--std=c++17",)
HALF_HEADER = "cuda_fp16.h"
ONE_ARCHITECTURE = "wgmma."
"""What instructions begin with that sm_90a has."""
_ARCH = re.compile(r"sm_\d+[af]?")
_SERIALIZED = re.compile(r"\(C75(?:08|10|11|15|17)\).*")
"""What ptxas says where it makes `wgmma` wait for each other, or ignores `setmaxnreg`."""


@dataclass(frozen=True)
class CompiledModule:
    """A cubin, what the compiler said, and what each kernel needs; `seconds` is 0 when it came from the cache."""

    cubin: bytes
    log: str
    resources: tuple[KernelResources, ...]
    seconds: float


def available_compilers() -> tuple[str, ...]:
    """`("nvrtc",)`, or nothing where it is not installed."""
    return ("nvrtc",) if nvrtc.library() is not None else ()


def compiler_name() -> str:
    """The compiler and its version, as `nvrtc 13.0`.  Raises CompileError when there is none."""
    return f"nvrtc {nvrtc.version()}"


def compile_source(
    source: str, arch: str = "sm_90", options: Sequence[str] = (), use_cache: bool = True
) -> CompiledModule:
    """Compile CUDA C++ for a real architecture such as `sm_90`; `options` go to NVRTC as they are.

    Raises CompileError with the first error of a source that is refused, and for one whose tensor cores would wait.
    """
    require(_ARCH.fullmatch(arch) is not None, CompileError, "architecture", "it must be like sm_90", arch=arch)
    name = compiler_name()
    law = f"{name} compiles for {', '.join(nvrtc.architectures())}"
    require(arch.rstrip("af") in nvrtc.architectures(), CompileError, "architecture", law, arch=arch)
    words = [f"--gpu-architecture={_with_features(arch, source)}", "--ptxas-options=-v", *OPTIONS]
    words += [*_less_header(name, source), *options]
    store, start = kernel_store([name, *words]) if use_cache else None, time.perf_counter()
    kept = None if store is None else store.read(store.place(source))
    if kept is None:
        made, log = _nvrtc(source, words)
    else:
        line, _, made = kept.partition(b"\n")
        log = json.loads(line)
    if made is None:
        raise CompileError(f"compile: {name} refuses the program for {arch}: {_first_error(log)}")
    if slow := _SERIALIZED.search(log):
        raise CompileError(f"compile: ptxas would hold the program for {arch} back: {slow[0]}")
    if store is not None and kept is None:
        store.write(store.place(source), json.dumps(log).encode() + b"\n" + made)
    return CompiledModule(made, log, parse_resources(log), time.perf_counter() - start if kept is None else 0.0)


def _with_features(arch: str, source: str) -> str:
    """The architecture with what only devices of just this one have, where a program needs that."""
    return f"{arch}a" if arch == "sm_90" and ONE_ARCHITECTURE in source else arch


def _less_header(name: str, source: str) -> tuple[str, ...]:
    """NVRTC can leave out the runtime functions it declares first, which takes a quarter of a small compile."""
    version = int(name.removeprefix("nvrtc ").split(".")[0])
    return ("--minimal",) if version >= 13 and HALF_HEADER not in source else ()


def _nvrtc(source: str, options: Sequence[str]) -> tuple[bytes | None, str]:
    folders = include_folders() if HALF_HEADER in source else ()
    if HALF_HEADER in source and not folders:
        raise CompileError(f"{HALF_HEADER}: not found; install nvidia-cuda-runtime and nvidia-cuda-cccl")
    return nvrtc.compile_program(source, (*options, *[f"--include-path={f}" for f in folders]))


def _first_error(log: str) -> str:
    lines = [x for x in log.splitlines() if "error" in x] or log.splitlines() or ["no message"]
    return lines[0].strip()
