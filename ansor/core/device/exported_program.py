"""A single program for use elsewhere: what stands in its manifest, and what its backend makes of it.

A program is a function of arrays by the name `entry`, an identifier of C.  Its backend writes its files, which have
that name (`entry.c`, `libentry.so`, `entry.h`, `entry.py`, ...), and loads it again (`ProgramExporter`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from te_lite.errors import require
from te_lite.expr.dtype import DTYPES
from te_lite.loops.names import identifier
from te_lite.loops.stmt import LoweredFunc, stored_in

from ..errors import ExportError
from ..values.json_values import items, record, sizes, text


@dataclass(frozen=True)
class Argument:
    """An array that a program is called with; `written` ones are its results."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    written: bool


@dataclass(frozen=True)
class ProgramFiles:
    """What a backend makes of a program: files by name, and its own facts as JSON.

    `machine` says what runs the machine code, `launch` how it is called.
    """

    files: Mapping[str, bytes]
    machine: Mapping[str, Any]
    launch: Mapping[str, Any]


@dataclass(frozen=True)
class ExportedProgram:
    """A program that was read from its folder."""

    subject: str
    target: str
    entry: str
    arguments: tuple[Argument, ...]
    content: ProgramFiles

    def file(self, name: str) -> bytes:
        """A file by name.  Raises ExportError when the manifest does not list it."""
        found = self.content.files.get(name)
        require(found is not None, ExportError, self.subject, "the manifest lists no such file", file=name)
        assert found is not None
        return found


class ProgramExporter(Protocol):
    """What writes and loads exported programs of a target kind."""

    def files(self, func: LoweredFunc, target: str) -> ProgramFiles:
        """Source, machine code, a C header and a loader in Python of a program.  Raises the backend's error."""

    def load(self, program: ExportedProgram) -> Callable[..., Any]:
        """The program as a function of arrays in this process, with `source`, `entry_name` and `time(...)`.

        Raises the backend's error, or a GraphError, when this machine cannot run it.
        """


def arguments_of(func: LoweredFunc) -> tuple[Argument, ...]:
    """The arrays that a lowered program is called with."""
    written = stored_in(func.body)
    return tuple([Argument(b.name, b.dtype, tuple(b.shape), b in written) for b in func.args])


def facts_to_json(func: LoweredFunc, target: str, kind: str, content: ProgramFiles) -> dict[str, Any]:
    """What the manifest says of a program."""
    return {
        "target": target, "kind": kind, "entry": func.name,
        "arguments": [asdict(argument) for argument in arguments_of(func)],
        "machine": dict(content.machine), "launch": dict(content.launch),
    }  # fmt: skip


def program_from_json(subject: str, facts: Mapping[str, Any], files: Mapping[str, bytes]) -> ExportedProgram:
    """The program of a manifest.  Raises an error of one sentence for anything that is not what it must be."""
    known = record(facts, ("target", "entry", "arguments", "machine", "launch"), "its manifest")
    entry = text(known["entry"], "entry")
    require(entry == identifier(entry), ExportError, "entry", "an identifier of C is needed", got=entry)
    arguments = tuple([_argument(a) for a in items(known["arguments"], "arguments")])
    content = ProgramFiles(files, record(known["machine"], (), "machine"), record(known["launch"], (), "launch"))
    return ExportedProgram(subject, text(known["target"], "target"), entry, arguments, content)


def _argument(data: Any) -> Argument:
    facts = record(data, ("name", "dtype", "shape", "written"), "argument")
    dtype, written = text(facts["dtype"], "dtype"), facts["written"]
    require(dtype in DTYPES, ExportError, "argument", f"dtypes are {', '.join(DTYPES)}", dtype=dtype)
    require(isinstance(written, bool), ExportError, "argument", "written is true or false", got=written)
    return Argument(text(facts["name"], "name"), dtype, sizes(facts["shape"], "shape"), written)


def shapes_text(arguments: Sequence[Argument]) -> str:
    """The arguments for people, as comments of C and Python may hold them: `A[8, 4] float32, B[8] int8 (written)`."""
    texts = [f"{identifier(a.name)}{list(a.shape)} {a.dtype}{' (written)' if a.written else ''}" for a in arguments]
    return ", ".join(texts)


CHECKS = """\
    if len(arrays) != len(ARGUMENTS):
        names = ", ".join(argument[0] for argument in ARGUMENTS)
        raise ValueError(f"{len(ARGUMENTS)} arrays are needed ({names}), got {len(arrays)}")
    for array, (name, dtype, shape, written) in zip(arrays, ARGUMENTS):
        fits = isinstance(array, np.ndarray) and str(array.dtype) == dtype
        fits = fits and array.shape == shape and array.flags.c_contiguous
        if not fits or (written and not array.flags.writeable):
            raise ValueError(f"{name} must be a C-contiguous {dtype} array of shape {shape}")
        if written and sum(np.may_share_memory(array, other) for other in arrays) > 1:
            raise ValueError(f"{name} is written, it must not share memory with other arrays")
"""
"""What the function of a loader looks at first; arrays are NumPy's."""


def table_text(arguments: Sequence[Argument]) -> str:
    """The arguments as Python text: tuples of name, dtype, shape and whether it is written."""
    rows = [f"    {(identifier(a.name), a.dtype, a.shape, a.written)!r},\n" for a in arguments]
    return f"ARGUMENTS = (\n{''.join(rows)})\n"
