"""One program as a folder that needs nothing of this package, and back again.

export_program(state, tensors, target, folder, name)        func = load_module(folder)
"""

from __future__ import annotations

import builtins
import keyword
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from te_lite import Tensor
from te_lite.errors import TeError, require
from te_lite.loops.names import Names
from te_lite.lowering.lower import lower

from ..errors import ExportError
from ..files.file_names import path_of
from ..files.sealed_folder import FolderKind, read_sealed_folder, require_new, write_sealed_folder
from ..target.target import Target
from ..values.json_values import record, text
from .backend import Backend, backend
from .exported_program import ProgramExporter, facts_to_json, program_from_json

LOADER_NAMES = ("ARGUMENTS", "cuda", "np", "numpy", "pycuda")
"""What loaders in Python use besides the standard library."""
PROGRAM = FolderKind("ansor program", 1, "program", ExportError)


def export_program(
    program: Any,
    tensors: Sequence[Tensor],
    target: Target | str,
    folder: str | os.PathLike[str],
    name: str,
    facts: Mapping[str, Any] | None = None,
) -> tuple[str, ...]:
    """Lower and compile a state or schedule into a new or empty folder; gives the names of the files there.

    The function is called `name`, or close to it where that is no free identifier of C.  `facts` go into the manifest.
    Raises ExportError for a folder that is not empty or cannot be written and a target whose programs cannot be
    exported, and the backend's own error when its compiler refuses.
    """
    target = Target.of(target)
    exporter = _exporter(backend(target.kind.name))
    require_new(PROGRAM, folder)
    func = lower(program, tensors, entry_of(name))
    require(not func.sizes, ExportError, name, "programs of open sizes are not exported", sizes=func.sizes)
    content = exporter.files(func, str(target))
    known = facts_to_json(func, str(target), target.kind.name, content)
    write_sealed_folder(PROGRAM, folder, content.files, {**(facts or {}), **known})
    return tuple(content.files)


def entry_of(name: str) -> str:
    """An identifier of C close to `name`, which is also free for a function and a module of Python."""
    text = Names().fresh(name)
    taken = {*dir(builtins), *keyword.kwlist, *sys.stdlib_module_names, *LOADER_NAMES}
    return Names().fresh(f"{text}_program") if text in taken else text


def load_module(folder: str | os.PathLike[str]) -> Callable[..., Any]:
    """The program of a folder that `ansor export` wrote, as a function of arrays with `source` and `time(...)`.

    Its machine code is loaded, which is code: load what you would also run as a program (docs/security.md).  Raises
    ExportError, in one sentence, for a folder that is no exported program or an incomplete one, for another version,
    and for a program that this machine cannot run.
    """
    facts, files = read_sealed_folder(PROGRAM, folder)
    subject = PROGRAM.subject(path_of(folder, ExportError))
    try:
        kind = text(record(facts, ("kind",), "its manifest")["kind"], "kind")
        return _exporter(backend(kind)).load(program_from_json(subject, facts, files))
    except TeError as error:
        said = str(error)
        raise ExportError(said if said.startswith(subject) else f"{subject}: {said}") from error


def _exporter(chosen: Backend) -> ProgramExporter:
    found: ProgramExporter | None = chosen.exports
    require(found is not None, ExportError, f"target {chosen.kind!r}", "its programs cannot be exported")
    assert found is not None
    return found
