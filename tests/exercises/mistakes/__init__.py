"""What learners get wrong: for every exercise the sentence of its starter, and changes of its solution with theirs."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import NamedTuple


class Mistake(NamedTuple):
    """`old` in the solution becomes `new`; the verdict has the words of `sentence`."""

    old: str
    new: str
    sentence: str


class Mistakes(NamedTuple):
    """`starter`: words of the verdict on the file with the hole; `right`: changes after which the solution passes."""

    starter: str
    answers: tuple[Mistake, ...]
    right: tuple[tuple[str, str], ...] = ()


def all_mistakes() -> dict[str, Mistakes]:
    """Those of every chapter."""
    chapters = [import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__)]
    return {name: mistakes for chapter in chapters for name, mistakes in chapter.MISTAKES.items()}
