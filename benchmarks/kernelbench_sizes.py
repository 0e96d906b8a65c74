"""Other sizes for a problem of KernelBench: all halved, the primes below them, or a batch of one.

A problem's module begins with its sizes (`batch_size = 128`, `input_shape = (4096, 4096)`), what follows from them is
computed (`bias_shape = (out_channels, 1, 1)`).  Numbers from `LEAST` on are sizes, others are windows and strides.  A
size changes where PyTorch still runs the model with it: channels may have to be multiples of groups.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

AS_WRITTEN = "as written"
LEAST = 16
"""The smallest number that is taken for a size."""
Sizes = dict[str, Any]


def prime(size: int) -> int:
    """The largest prime below a size, which is 3 at least."""
    return next(n for n in range(size - 1, 1, -1) if all(n % k for k in range(2, int(n**0.5) + 1)))


def half(size: int) -> int:
    return size // 2


ONE = "one"
CHANGES: Mapping[str, Callable[[int], int]] = {"primes": prime, "halves": half, ONE: lambda size: 1}
"""By the word for it, what becomes of a size; of `one`, of those alone that are named a batch."""


def load(file: Path, sizes: Mapping[str, Any]) -> ModuleType:
    """The module of a problem, with other values in place of those that it gives to some names."""
    tree = ast.parse(file.read_text(), str(file))
    tree.body = [s for statement in tree.body for s in (statement, *_given(statement, sizes))]
    module = ModuleType("problem")
    module.__file__ = str(file)
    exec(compile(ast.fix_missing_locations(tree), str(file), "exec", dont_inherit=True), module.__dict__)
    return module


def _given(statement: ast.stmt, sizes: Mapping[str, Any]) -> Iterator[ast.stmt]:
    """Statements that give names of a statement their other values."""
    for name in _names(statement):
        if name in sizes:
            yield ast.parse(f"{name} = {sizes[name]!r}").body[0]


def changed(file: Path, change: str, runs: Callable[[Mapping[str, Any]], bool]) -> Sizes:
    """The sizes of a problem after a change: one after the other, those with which, beside those before, it `runs`."""
    found: Sizes = {}
    for name, value in written_sizes(file).items():
        if change != ONE or "batch" in name:
            other = _each(value, CHANGES[change])
            found |= {name: other} if runs({**found, name: other}) else {}
    return found


def written_sizes(file: Path) -> Sizes:
    """The names that a problem gives sizes to, each in a statement `name = number`, and these: integers, or tuples."""
    module = load(file, {})
    names = [name for statement in ast.parse(file.read_text()).body for name in _names(statement)]
    return {name: value for name in names if _is_size(value := getattr(module, name, None))}


def _names(statement: ast.stmt) -> Iterator[str]:
    """What a statement gives numbers to, rather than what follows from other names."""
    if isinstance(statement, ast.Assign) and not any(isinstance(e, ast.Name) for e in ast.walk(statement.value)):
        yield from [target.id for target in statement.targets if isinstance(target, ast.Name)]


def _is_size(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(type(v) is int for v in value) and any(v >= LEAST for v in value)
    return type(value) is int and value >= LEAST


def _each(value: Any, change: Callable[[int], int]) -> Any:
    if isinstance(value, tuple):
        return tuple([change(v) if v >= LEAST else v for v in value])
    return change(value)
