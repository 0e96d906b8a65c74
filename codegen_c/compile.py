"""The C compiler: source text in, loaded shared library out.

Libraries are stored under a name made of the source, the flags and the compiler's version, so equal programs are
compiled once.  The store is `$CODEGEN_C_CACHE` where that is set, else a directory that lives as long as the process.
What lies there runs as the user: nobody else may write there, and a file that is not what was written is made again.
"""

from __future__ import annotations

import ctypes
import hashlib
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from ansor.core.files.private_files import private_folder, read_sealed, scratch_folder, write_sealed
from ansor.core.host.command import ANSWER_SECONDS, WORK_SECONDS, Finished, Unfinished, run_command
from te_lite import environment
from te_lite.errors import require

from .errors import CompileError
from .openmp import open_library

FLAGS = (
    "-O3", "-march=native", "-fopenmp", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fwrapv",
    "-std=gnu11", "-fPIC", "-shared", "-w",
)  # fmt: skip
OBJECT_FLAGS = (*[flag for flag in FLAGS if flag != "-shared"], "-c")
OWN_FLAGS = (
    "-fno-tree-loop-if-convert", "-fexcess-precision=16", "-ffloat16-excess-precision=none",
    "-mno-avx512fp16", "-mprefer-vector-width=512",
)  # fmt: skip
"""Flags of some compilers and processors only; the others get those that they know.

With if-convert gcc 12 vectorizes some guarded copies wrongly for AVX-512 (tests/codegen_c/test_copied_whole.py).
The excess precision of float16, of gcc and clang, would leave an expression in float32 until it is stored, so that its
value followed the schedule.  Of AVX512-FP16 gcc 12 and 13 write masked moves that the assembler refuses ("unsupported
masking for vmovsh").  Loops over the lanes of a vector (`functions.py`) become as wide as the vectors of the program:
left to itself, gcc halves those of AVX-512."""
_COMPLAINTS = ("error", "multiple definition", "undefined reference")


def compiler_command() -> tuple[str, ...]:
    """The compiler: `$CC` where that is set, else gcc, else clang.  Raises CompileError when there is none."""
    wanted = shlex.split(environment.CC.text)
    for command in [wanted] if wanted else [["gcc"], ["clang"], ["cc"]]:
        found = shutil.which(command[0])
        if found:
            return (found, *command[1:])
    raise CompileError(
        f"C compiler: {wanted[0] if wanted else 'gcc or clang'} is not on PATH; install gcc, or name a compiler in CC"
    )


def asked(command: Sequence[str], *arguments: str) -> Finished:
    """What the compiler says of a question.  Raises CompileError when it says nothing."""
    try:
        return run_command([*command, *arguments], ANSWER_SECONDS)
    except Unfinished as e:
        raise CompileError(f"C compiler: {' '.join(command)} {arguments[0]} {e}") from e


@lru_cache(maxsize=8)
def compiler_version(command: tuple[str, ...]) -> str:
    """What the compiler says of itself (part of the name of every library); asked once a process and command."""
    done = asked(command, "--version")
    require(done.code == 0, CompileError, " ".join(command), "the compiler must answer --version", code=done.code)
    return done.stdout


def compiler_facts() -> tuple[str, ...]:
    """What is part of the name of all that the compiler makes: its command, its version, and flags of processors.

    Raises CompileError.
    """
    command = compiler_command()
    return (*command, compiler_version(command), *processor_flags(command))


@lru_cache(maxsize=8)
def processor_flags(command: tuple[str, ...]) -> tuple[str, ...]:
    """Those of `OWN_FLAGS` that the compiler knows."""
    return tuple([flag for flag in OWN_FLAGS if _knows(command, flag)])


def _knows(command: tuple[str, ...], flag: str) -> bool:
    return asked(command, flag, "-Werror", "-E", "-x", "c", "/dev/null").code == 0


@lru_cache(maxsize=1)
def _process_store() -> tempfile.TemporaryDirectory[str]:
    """The store where `$CODEGEN_C_CACHE` is not set: one a process, removed when that ends."""
    return scratch_folder("codegen_c")


def store_path() -> Path:
    """The directory of compiled libraries, made when it is missing.

    Raises CompileError when it cannot be made, or somebody else may write there.
    """
    wanted = environment.CODEGEN_C_CACHE.text
    path = Path(wanted).expanduser() if wanted else Path(_process_store().name)
    try:
        return private_folder(path, CompileError, "compile: the directory of compiled libraries")
    except OSError as e:
        raise CompileError(f"compile: the directory of compiled libraries {path} cannot be made, {e.strerror}") from e


def library_path(source: str, timeout: float | None = None, flags: Sequence[str] = FLAGS) -> Path:
    """Compile `source` (unless that was done before) and give the path of the shared library.

    `timeout` is in seconds.  Raises CompileError with the compiler's first complaint, when it takes too long, and
    when the library cannot be written.
    """
    return compiled(source, flags, ".so", ("-lm",), "the program", timeout)


def object_code(source: str, name: str = "program", flags: Sequence[str] = OBJECT_FLAGS) -> bytes:
    """The object file of a C source; equal sources are compiled once.  `name` is for the error.

    Raises CompileError with the compiler's first complaint.  Threads may compile side by side.
    """
    code = read_sealed(compiled(source, flags, ".o", (), f"kernel {name}"))
    require(code is not None, CompileError, f"kernel {name}", "its stored object file was changed while it was read")
    assert code is not None
    return code


def compiled(
    source: str, flags: Sequence[str], suffix: str, libraries: Sequence[str], what: str, timeout: float | None = None
) -> Path:
    """The stored file that the compiler makes of a source with these flags; equal ones are made once.

    Errors as for `library_path`; `what` names the source in them.
    """
    text = "\0".join((source, *flags, *compiler_facts()))
    path = stored_path(text.encode(), suffix)
    if read_sealed(path) is not None:
        return path
    with build_folder() as build:
        given, made = build / "program.c", build / "made"
        try:
            given.write_text(source)
            run_compiler([*flags, str(given), "-o", str(made), *libraries], what, build, timeout)
            write_sealed(path, made.read_bytes())
        except OSError as e:
            raise CompileError(f"compile: the library {path} cannot be written, {e.strerror}") from e
    return path


def stored_path(content: bytes, suffix: str) -> Path:
    """The place in the store of what is made of `content`."""
    return store_path() / f"{hashlib.sha256(content).hexdigest()[:32]}{suffix}"


@contextmanager
def build_folder() -> Iterator[Path]:
    """A temporary folder beside the stored libraries, so that what is made there can be moved into place."""
    with tempfile.TemporaryDirectory(dir=store_path(), prefix="build_") as build:
        yield Path(build)


def run_compiler(arguments: Sequence[str], what: str, build: Path, timeout: float | None = None) -> None:
    """Call the compiler.  Raises CompileError with its first complaint about `what`, without the folder's name."""
    command = compiler_command()
    name = Path(command[0]).name
    try:
        limit = WORK_SECONDS if timeout is None else timeout
        done = run_command([*command, *arguments, *processor_flags(command)], limit)
    except Unfinished as e:
        raise CompileError(f"compile: {name} {e}") from e
    if done.code != 0:
        said = done.stderr.splitlines()
        lines = [x for x in said if any(word in x for word in _COMPLAINTS)] or said or ["no message"]
        if "_Float16" in lines[0] and ("not supported" in lines[0] or "unknown type" in lines[0]):
            raise CompileError(f"compile: {what} computes with float16, which needs gcc 12 or clang 16, got {name}")
        raise CompileError(f"compile: {name} refuses {what}: {lines[0].replace(f'{build}/', '').strip()}")


@lru_cache(maxsize=512)
def _loaded(path: Path) -> ctypes.CDLL:
    """A loaded library; the 512 that were used last need no look-up."""
    return open_library(path)


def load(source: str, timeout: float | None = None, flags: Sequence[str] = FLAGS) -> ctypes.CDLL:
    """The compiled and loaded library of `source`.  Raises CompileError when that fails."""
    path = library_path(source, timeout, flags)
    try:
        return _loaded(path)
    except OSError as e:
        raise CompileError(f"compile: the library {path} cannot be loaded, {e}") from e
