"""The build of the block emulator: g++ makes a library of CUDA source, and the host that runs it.

The text is unchanged but for inline PTX, which becomes calls of the host (`emulator_ptx.py`).

`-fsanitize=thread` makes g++ call a function before every memory access, and `-fsanitize=bounds,alignment` before
every bad index or pointer; the host defines those functions itself, so no sanitizer library takes part.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from ansor.core.files.private_files import private_folder, read_sealed, scratch_folder, write_sealed
from ansor.core.host.command import ANSWER_SECONDS, WORK_SECONDS, Finished, Unfinished, run_command
from te_lite import environment
from te_lite.errors import require

from ..driver.cache import cache_folder, key_of
from .emulator_ptx import emulated
from .emulator_report import EmulatorError

HERE = Path(__file__).parent
KERNEL_FLAGS = (
    "-x", "c++", "-std=gnu++17", "-Og", "-g1", "-fPIC", "-shared", "-nodefaultlibs", "-fno-exceptions", "-fno-rtti",
    "-fno-strict-aliasing", "-fwrapv", "-ffp-contract=off", "-fno-math-errno", "-fno-extern-tls-init", "-w",
    "-U_FORTIFY_SOURCE",
)  # fmt: skip
CHECK_FLAGS = (
    "-fsanitize=thread", "-fsanitize=bounds,alignment,integer-divide-by-zero", "-fno-tree-sra",
    "-fno-tree-loop-distribute-patterns", "-fno-tree-loop-im",
)  # fmt: skip
HOST_FLAGS = ("-std=c++20", "-O2", "-U_FORTIFY_SOURCE", "-rdynamic", "-pthread")
HOST_LIBRARIES = ("-Wl,--no-as-needed", "-ldl", "-lm")
FEW = 3
"""Libraries of a process for which it is not worth while to have `cuda.h` read once for all that follow."""
DYNAMIC = "emu_dynamic_shared"
# bytes and alignment of the types that shared arrays are declared with
ALIGNMENTS = {
    "char": 1, "bool": 1, "half": 2, "short": 2, "half2": 4, "int": 4, "unsigned": 4, "float": 4, "double": 8,
    "float2": 8, "int2": 8, "float4": 16, "int4": 16, "double2": 16,
}  # fmt: skip


@dataclass(frozen=True)
class SharedArray:
    """A shared array: its place in the thread-local block, its bytes, the alignment its declaration promises."""

    name: str
    offset: int
    nbytes: int
    alignment: int


@dataclass(frozen=True)
class Library:
    """Compiled kernels.  `arrays` ends with the dynamic shared memory; `granule` is the smallest element in it."""

    path: Path
    arrays: tuple[SharedArray, ...]
    granule: int


def compiler_command() -> tuple[str, ...]:
    """The C++ compiler: `$CXX` where that is set, else g++.  Raises EmulatorError when there is none."""
    wanted = shlex.split(environment.CXX.text)
    found = shutil.which(wanted[0])
    if found is None:
        raise EmulatorError(f"emulator: {wanted[0]} is not on PATH; install g++ to run CUDA kernels without a GPU")
    return (found, *wanted[1:])


@lru_cache(maxsize=1)
def _store() -> tempfile.TemporaryDirectory[str]:
    """Where this process keeps what it builds; removed when it ends."""
    return scratch_folder("emulator")


def host() -> Path:
    """The program that runs compiled kernels, in the folder of compiled modules; made when it is not there yet.

    Raises EmulatorError without a compiler, and when the folder cannot be written, or others may write it.
    """
    folder = cache_folder()
    try:
        place = private_folder(folder or Path(_store().name), EmulatorError, "emulator:")
        path = place / f"host_{_host_key(compiler_command())}"
        if read_sealed(path) is None:
            made = Path(_store().name) / "host"
            _compile([*HOST_FLAGS, str(HERE / "host.cpp"), "-o", str(made), *HOST_LIBRARIES], "host.cpp")
            write_sealed(path, made.read_bytes(), mode=0o700)
    except OSError as e:
        raise EmulatorError(f"emulator: {folder} cannot be written, {e.strerror}; set CODEGEN_CUDA_CACHE") from e
    return path


@lru_cache(maxsize=8)
def _host_key(command: tuple[str, ...]) -> str:
    """A name made of all that decides what the host is."""
    texts = [path.read_text() for path in sorted(HERE.iterdir()) if path.suffix in (".cpp", ".h")]
    return key_of(*command, _tool(*command, "--version"), *HOST_FLAGS, *HOST_LIBRARIES, *texts)


def library(source: str, kernels: tuple[str, ...], dynamic_bytes: int, check: bool) -> Library:
    """Compile `source` with entries for `kernels` and at most `dynamic_bytes` of dynamic shared memory.

    The 512 libraries that were used last are built once.
    Raises EmulatorError with the compiler's first complaint, and for a kernel that the source does not have.
    """
    _check_names(source, kernels)
    return _library(emulated(source), kernels, dynamic_bytes, check)


def forget() -> None:
    """Build libraries anew: for those who remove their folders."""
    _library.cache_clear()
    _read_header.cache_clear()


@lru_cache(maxsize=512)
def _library(source: str, kernels: tuple[str, ...], dynamic_bytes: int, check: bool) -> Library:
    text = f"{source}\n{_entries(source, kernels, dynamic_bytes)}"
    directory = Path(_store().name) / key_of(str(check), text)
    directory.mkdir(exist_ok=True)
    path, file = directory / "kernel.so", directory / "kernel.cu"
    file.write_text(text)
    flags = (*KERNEL_FLAGS, *(CHECK_FLAGS if check else ()))
    header = _read_header(compiler_command(), flags) if _library.cache_info().misses > FEW else HERE / "cuda.h"
    _compile([*flags, f"-I{HERE}", "-include", str(header), str(file), "-o", str(path)], "kernel.cu")
    return Library(path, _shared_arrays(path, _declared(source)), _granule(source))


@lru_cache(maxsize=4)
def _read_header(command: tuple[str, ...], flags: tuple[str, ...]) -> Path:
    """A copy of `cuda.h` beside which lies what the compiler `command` has read of it with these flags.

    It looks there first.
    """
    folder = Path(tempfile.mkdtemp(dir=_store().name, prefix="header_"))
    header = folder / "cuda.h"
    header.write_text((HERE / "cuda.h").read_text())
    language = ["c++-header" if flag == "c++" else flag for flag in flags]
    _compile([*language, f"-I{HERE}", str(header), "-o", f"{header}.gch"], "cuda.h")
    return header


def _check_names(source: str, kernels: Sequence[str]) -> None:
    for name in kernels:
        found = re.search(rf"__global__[^;{{}}]*\b{name}\s*\(", source)
        require(found, EmulatorError, name, "there is no kernel of this name in the source")


def _entries(source: str, kernels: Sequence[str], dynamic_bytes: int) -> str:
    """What is appended to the source: one entry a kernel, and the memory of all `extern __shared__` arrays.

    It is aligned as they promise, and no more, up to the 1024 bytes that swizzles repeat after.
    """
    names = sorted(set(re.findall(r"extern\s+__shared__\b[^;]*?(\w+)\s*\[\s*\]\s*;", source)) | {DYNAMIC})
    size = max(dynamic_bytes, 16)
    promised = max([16, *[_declared(source).get(name, 16) for name in names]])
    asm = ['.section .tbss,\\"awT\\",%nobits', ".balign 65536", f".zero {promised % 1024}"]
    asm += [f".globl {name}\\n.type {name},%object\\n.size {name},{size}\\n{name}:" for name in names]
    asm += [f".zero {size}", ".previous"]
    return "\n".join([*[f"EMU_KERNEL({name})" for name in kernels], '__asm__("' + "\\n".join(asm) + '\\n");', ""])


def _declared(source: str) -> dict[str, int]:
    """The alignment that each shared array's declaration promises, by name."""
    found = {}
    for declaration in re.findall(r"__shared__\s+([^;=]*?\[[^;=]*);", source):
        asked = [int(x) for x in re.findall(r"(?:__align__|alignas|aligned)\s*\(\s*(\d+)\s*\)", declaration)]
        types = [ALIGNMENTS[word] for word in re.findall(r"\w+", declaration) if word in ALIGNMENTS]
        for name in re.findall(r"(\w+)\s*\[", declaration)[:1]:
            found[name] = max([*asked, *types, 1])
    return found


def _granule(source: str) -> int:
    """Bytes of the smallest element that the source may keep in shared memory."""
    words = set(re.findall(r"[a-z]+", source))
    return 1 if words & {"char", "uchar", "bool"} else 2 if words & {"half", "short", "ushort"} else 4


def _shared_arrays(path: Path, declared: dict[str, int]) -> tuple[SharedArray, ...]:
    rows = [row.split(maxsplit=7) for row in _tool("readelf", "-sWC", str(path)).splitlines()]
    symbols = {row[7]: row for row in rows if len(row) == 8 and row[3] == "TLS"}  # kernels may use a name each
    arrays = [
        SharedArray(name, int(row[1], 16), int(row[2], 0), 16 if name == DYNAMIC else declared.get(name, 16))
        for name, row in ((full.rsplit("::", 1)[-1], row) for full, row in symbols.items())
    ]
    dynamic = [a.offset for a in arrays if a.name == DYNAMIC]
    return (*[a for a in arrays if a.offset not in dynamic], *[a for a in arrays if a.name == DYNAMIC])


def source_lines(path: Path, offsets: Sequence[int]) -> dict[int, int | None]:
    """The line of `kernel.cu` that each code offset of a library belongs to; None for the header's own code."""
    out: dict[int, int | None] = {}
    for offset in offsets:
        frames = _tool("addr2line", "-i", "-e", str(path), hex(offset)).splitlines()
        lines = [re.search(r"kernel\.cu:(\d+)", frame) for frame in frames]
        out[offset] = next((int(m[1]) for m in lines if m), None)
    return out


def finished(command: Sequence[str], seconds: float, what: str, env: Mapping[str, str] | None = None) -> Finished:
    """A command that has ended.  Raises EmulatorError, which begins with `what`, for one that has not."""
    try:
        return run_command(command, seconds, env)
    except Unfinished as e:
        raise EmulatorError(f"emulator: {what} {e}") from e


def _tool(*command: str) -> str:
    done = finished(command, ANSWER_SECONDS, command[0])
    law = "the compiler and the GNU binutils must work"
    require(done.code == 0, EmulatorError, f"emulator: {command[0]}", law, code=done.code)
    return done.stdout


def _compile(arguments: Sequence[str], name: str) -> None:
    command = compiler_command()
    done = finished([*command, *arguments], WORK_SECONDS, Path(command[0]).name, os.environ | {"LC_ALL": "C"})
    if done.code != 0:
        lines = [x for x in done.stderr.splitlines() if "error" in x] or done.stderr.splitlines() or ["no message"]
        where = re.sub(rf"\S*/{re.escape(name)}", name, lines[0]).strip()
        raise EmulatorError(f"emulator: {Path(command[0]).name} refuses the kernel: {where}")
