"""Python of the user's own on the command line: modules to import, and workloads in them.

Naming a file or module here runs it, as `python FILE` would; see docs/security.md.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from te_lite.errors import require
from te_lite.expr.spelling import did_you_mean

from ..core.errors import TaskError
from ..core.host.hints import told_first
from ..core.target.registry import OWN_KINDS, known_kinds, plugin_kinds
from ..core.tasks.workloads import make_workload_key, register_workload, registered_name
from ..core.values.parts import said

IMPORT = "Python to run first, a module or a .py file, for what it registers; may be given again"


def add_import(parser: Any) -> None:
    """Give a command the option `--import`."""
    parser.add_argument("--import", dest="modules", action="append", default=[], metavar="MODULE", help=IMPORT)


def run_module(text: str) -> ModuleType:
    """Import a module by name, from the current folder too, or a `.py` file by path.

    A file that was imported before is not run again.  Raises TaskError, in one sentence, when it is not there or fails.
    What registers a target is named in hints, since no other command knows that target without it.
    """
    module = _imported(text)
    if set(known_kinds()).difference(OWN_KINDS, plugin_kinds()):
        told_first(text)
    return module


def _imported(text: str) -> ModuleType:
    path = Path(text)
    is_file = path.suffix == ".py"
    require(not is_file or path.is_file(), TaskError, text, "there is no such file")
    folder = str(path.resolve().parent if is_file else Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return _imported_file(path.resolve()) if is_file else importlib.import_module(text)
    except (Exception, SystemExit) as error:
        raise TaskError(f"{text}: cannot be imported: {said(error)}") from error


def _imported_file(path: Path) -> ModuleType:
    known = sys.modules.get(path.stem)
    if known is not None:
        same = known.__file__ is not None and Path(known.__file__).resolve() == path
        require(same, TaskError, str(path), "another module has the name of this file; rename it", module=path.stem)
        return known
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[path.stem] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
    return module


def workload_key(text: str, args: str | None) -> str:
    """The workload key of `FILE.py:FUNCTION` or `MODULE:FUNCTION` with the arguments of `--args`.

    A function that is not registered is registered under its own name.  Raises TaskError, in one sentence, for what is
    not there or does not fit.
    """
    func = function_of(text)
    given = arguments("--args", args or "", text, inspect.signature(func))
    if registered_name(func) is None:
        register_workload(func)
    return make_workload_key(func, given)


def function_of(text: str) -> Callable[..., Any]:
    """The function that `FILE.py:FUNCTION` or `MODULE:FUNCTION` names.

    Raises TaskError when it is not there, or none is named.
    """
    module_name, _, name = text.rpartition(":")
    law = "one colon stands between a file or module and its function, as in mine.py:f"
    require(module_name and not module_name.endswith(":"), TaskError, text, law)
    module = run_module(module_name)
    functions = {n: f for n, f in vars(module).items() if inspect.isfunction(f)}
    own = [n for n, f in functions.items() if f.__module__ == module.__name__]
    wanted = (
        f"has no function {name!r}; {did_you_mean(name, own)}" if name else "a function in it must be named, as in "
    )
    example = "" if name else f"{module_name}:{own[0] if own else 'f'}; "
    law = f"{wanted}{example}its functions are {', '.join(own) or 'none'}"
    require(name in functions, TaskError, module_name, law)
    return functions[name]


def arguments(option: str, text: str, of: str, signature: inspect.Signature) -> tuple[Any, ...]:
    """The values of `1,(2,2),"float32"` or `n=1,m=2`, in the order of a signature; they are literals, nothing runs.

    Raises TaskError for what is no list of literals, and for arguments that do not fit.
    """
    needed = f"{of} takes {signature}"
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        assert isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        positional = [ast.literal_eval(a) for a in call.args]
        named = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg is not None}
        assert len(named) == len(call.keywords)
    except (SyntaxError, ValueError, AssertionError, RecursionError, MemoryError) as error:
        law = "numbers, texts and tuples with commas between them are needed, as in 1,(2,2) or n=1,m=2"
        raise TaskError(f"{option}: {law}, got {text!r}; {needed}") from error
    try:
        bound = signature.bind(*positional, **named)
    except TypeError as error:
        raise TaskError(f"{option}: {error}; {needed}{_unwrapped(positional, signature)}") from error
    if bound.kwargs:
        bound.apply_defaults()
    require(not bound.kwargs, TaskError, option, f"arguments that have only names cannot be recorded; {needed}")
    return bound.args


def _unwrapped(positional: Sequence[Any], signature: inspect.Signature) -> str:
    """What to write instead of one tuple of all the arguments, where that would do."""
    match positional:
        case [tuple(values)] if len(values) == len(signature.parameters):
            return f", and {values} is one argument, a tuple; write {','.join(map(repr, values))}"
    return ""
