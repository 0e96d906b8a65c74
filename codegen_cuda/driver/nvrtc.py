"""NVRTC through ctypes: CUDA C++ to a cubin inside this process, without driver or GPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from ..program.errors import CompileError
from .toolkit import nvrtc_candidates

_COMPILATION = 6


@lru_cache(maxsize=1)
def library() -> ctypes.CDLL | None:
    """The NVRTC library, or None when there is none; looked for once a process."""
    for name in nvrtc_candidates():
        try:
            found = _with_builtins(name)
        except OSError:
            continue
        found.nvrtcGetErrorString.restype = ctypes.c_char_p
        return found
    return None


def _with_builtins(name: str) -> ctypes.CDLL:
    """NVRTC and the library that it opens when it compiles; some wheels do not tell it where that lies: beside it."""
    for beside in sorted(Path(name).parent.glob("libnvrtc-builtins.so*")) if "/" in name else ():
        ctypes.CDLL(str(beside), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(name)


def version() -> str:
    """The version of NVRTC, as `13.0`."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(_library().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return f"{major.value}.{minor.value}"


@lru_cache(maxsize=1)
def architectures() -> tuple[str, ...]:
    """What NVRTC compiles for, ascending: `sm_75`, ..."""
    lib, count = _library(), ctypes.c_int()
    _check(lib.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(lib.nvrtcGetSupportedArchs(numbers))
    return tuple([f"sm_{number}" for number in sorted(numbers)])


def _library() -> ctypes.CDLL:
    found = library()
    if found is None:
        raise CompileError("NVRTC: libnvrtc is not installed; install nvidia-cuda-nvrtc or set CUDA_HOME")
    return found


def _check(code: int, log: str = "") -> None:
    if code:
        text = _library().nvrtcGetErrorString(code).decode()
        raise CompileError(" ".join(f"NVRTC: the call must succeed, got {text} {log}".split()))


def _text(program: ctypes.c_void_p, what: str) -> bytes:
    """The `Log` or the `CUBIN` of a program."""
    lib, size = _library(), ctypes.c_size_t()
    _check(lib[f"nvrtcGet{what}Size"](program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(lib[f"nvrtcGet{what}"](program, buffer))
    return buffer.raw


def compile_program(source: str, options: Sequence[str]) -> tuple[bytes | None, str]:
    """`(cubin, log)`; the cubin is None when the source is refused.  Raises CompileError when NVRTC fails otherwise.

    The lock of Python is free meanwhile, so threads compile side by side.
    """
    lib, program = _library(), ctypes.c_void_p()
    _check(lib.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"program.cu", 0, None, None))
    try:
        words = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
        code = lib.nvrtcCompileProgram(program, len(options), words)
        log = _text(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if code != _COMPILATION:
            _check(code, log)
        return (_text(program, "CUBIN") if code == 0 else None), log
    finally:
        lib.nvrtcDestroyProgram(ctypes.byref(program))
