"""Imports that wait until somebody asks: public names of a package (PEP 562), and functions of modules by name.

The names of a package that few use are imported under `if TYPE_CHECKING:` in its `__init__`, where type checkers and
import-linter read them, and `__getattr__, __dir__ = later(__name__)` imports each when it is first asked for.
`when_called` is for functions that are called where a predicate holds, such as that a target is a GPU.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any


def loaded(module: str) -> Any:
    """A module by its full name."""
    return import_module(module)


def when_called(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported when it is first called."""

    def call(*args: Any, **named: Any) -> Any:
        return getattr(import_module(module), name)(*args, **named)

    return call


def later(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a package whose names under `if TYPE_CHECKING:` come later.

    The package's `INSTEAD` says what to write for names that users of others look for.
    """

    @cache
    def table() -> dict[str, tuple[str, str]]:
        blocks = [node for node in ast.parse(inspect.getsource(sys.modules[package])).body if isinstance(node, ast.If)]
        imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
        return {a.asname or a.name: (f".{node.module or ''}", a.name) for node in imports for a in node.names}

    def get(name: str) -> Any:
        if name.startswith("__") or name not in table():
            instead = vars(sys.modules[package]).get("INSTEAD", {}).get(name)
            raise AttributeError(f"module {package!r} has no attribute {name!r}" + (f"; {instead}" if instead else ""))
        module, own = table()[name]
        found = vars(import_module(module, package))
        value = found[own] if own in found else import_module(f"{found['__name__']}.{own}")
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *table()})
