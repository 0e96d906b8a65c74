"""Programs for use from C, and from Python with NumPy alone: source, shared library, header and loader.

A C program includes `NAME.h` and is linked with `NAME.c` (or `libNAME.so`); Python does `from NAME import NAME`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ansor.core.device.exported_program import (
    CHECKS,
    Argument,
    ExportedProgram,
    ProgramFiles,
    arguments_of,
    shapes_text,
    table_text,
)
from ansor.core.files.private_files import read_sealed
from ansor.core.host.process import host_family
from te_lite.errors import require
from te_lite.loops.c_text import TYPES
from te_lite.loops.names import Names
from te_lite.loops.stmt import LoweredFunc

from .compile import compiler_command, library_path, processor_flags
from .emit import emit, entry_name
from .errors import CompileError
from .library import library_file
from .module import Module
from .openmp import open_library
from .processor import check_machine, flags_for, machine_facts, options_for


class CExporter:
    """Follows `ansor.core.device.exported_program.ProgramExporter`."""

    def files(self, func: LoweredFunc, target: str) -> ProgramFiles:
        """Raises EmitError, and CompileError also for a processor whose programs this one cannot run."""
        flags = flags_for(target)
        name, arguments, source = entry_name(func), arguments_of(func), emit(func, options=options_for(target))
        library = read_sealed(library_path(source, flags=flags))
        require(library is not None, CompileError, name, "its stored library was changed while it was read")
        assert library is not None
        texts = {
            f"{name}.c": f'/* {_compiled_by(name, flags)} */\n#include "{name}.h"\n\n{source}',
            f"{name}.h": header(name, arguments),
            f"{name}.py": loader(name, arguments),
        }
        files = {**{file: text.encode() for file, text in texts.items()}, library_name(name): library}
        return ProgramFiles(files, machine_facts(), {})

    def load(self, program: ExportedProgram) -> Module:
        """Raises GraphError when it was compiled for another machine, CompileError for a file that is no library."""
        check_machine(program.subject, program.content.machine)
        source = program.file(f"{program.entry}.c").decode(errors="replace")
        try:
            library = open_library(library_file(program.file(library_name(program.entry))))
            return Module(program.arguments, source, program.entry, library)
        except (OSError, AttributeError) as error:
            law = f"{library_name(program.entry)} is no library with this program"
            raise CompileError(f"{program.subject}: {law} ({type(error).__name__})") from error


def library_name(name: str) -> str:
    """The file of the shared library; Python would take one without `lib` for a module of its own."""
    return f"lib{name}.so"


def _compiled_by(name: str, flags: Sequence[str]) -> str:
    """How the library is made, for the reader of the source."""
    words = " ".join((*flags, *processor_flags(compiler_command())))
    return f"for processors of the family {host_family()}: gcc {words} {name}.c -o {library_name(name)} -lm"


def header(name: str, arguments: Sequence[Argument]) -> str:
    """The C header of a program, for C++ as well."""
    names = Names()
    given = [f"{'' if a.written else 'const '}{TYPES[a.dtype]} *{names.fresh(a.name)}" for a in arguments]
    guard = f"ANSOR_{name.upper()}_H"
    lines = [
        f"/* {name}: {shapes_text(arguments)}", "",
        "   Arrays are row-major; none that is written may overlap another. */",
        f"#ifndef {guard}", f"#define {guard}", "",
        "#include <stdbool.h>", "#include <stdint.h>", "",
        "#ifdef __cplusplus", 'extern "C" {', "#endif", "",
        f"void {name}({', '.join(given)});", "",
        "/* The seconds that `number` calls take. */",
        f"double {name}_seconds(int64_t number, {', '.join(given)});", "",
        "#ifdef __cplusplus", "}", "#endif", "#endif",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def loader(name: str, arguments: Sequence[Argument]) -> str:
    """A module of Python that calls the shared library beside it; it needs NumPy only."""
    return f'''"""{name}(...) of NumPy arrays: {shapes_text(arguments)}.  Needs NumPy only."""

import ctypes
import os.path

import numpy as np

{table_text(arguments)}_FOLDER = os.path.dirname(os.path.abspath(__file__))
_library = ctypes.CDLL(os.path.join(_FOLDER, "{library_name(name)}"))


def {name}(*arrays):
{CHECKS}    _library.{name}(*[ctypes.c_void_p(array.ctypes.data) for array in arrays])
'''
