"""Names that nearly exist: the known name that is most like one, and misspelt or misplaced primitives."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from typing import Any, ClassVar


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean resnet-18? ` for `resnet18`: the one of `known` that is most like it; empty when none is."""
    plain: dict[str, str] = {}
    for one in known:
        plain.setdefault(_plain(one), one)
    found = difflib.get_close_matches(_plain(name), plain, 1, 0.6)
    return f"did you mean {plain[found[0]]}? " if found else ""


def public_names(kind: type) -> list[str]:
    """The methods and properties of a class that people use."""
    return [name for name in dir(kind) if not name.startswith("_")]


class Primitives:
    """Base of the parts of a schedule: a misspelt primitive is told, and so is one of another part.

    A part says how it is written: `class StageHandle(Primitives, written="s[C]")`.
    """

    _parts: ClassVar[dict[str, type[Primitives]]] = {}
    _written: ClassVar[str] = ""

    def __init_subclass__(cls, written: str | None = None) -> None:
        super().__init_subclass__()
        if written is not None:
            cls._written = written
            Primitives._parts[written] = cls

    @classmethod
    def _known(cls) -> list[str]:
        """The primitives that it has."""
        return public_names(cls)

    def __getattr__(self, name: str) -> Any:
        known = self._known()
        places = [f"{written}.{name}" for written, part in Primitives._parts.items() if name in part._known()]
        instead = f"write {places[0]}(...)" if places else f"{did_you_mean(name, known)}it has {', '.join(known)}"
        raise AttributeError(f"{self._written} has no {name!r}; {instead}")
