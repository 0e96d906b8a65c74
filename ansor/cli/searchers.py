"""Searchers, and the measured programs that they are tried on, by their names on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from te_lite.errors import require
from te_lite.expr.spelling import did_you_mean

from ..core.errors import TaskError
from ..offline.contest import Maker
from ..offline.searchers import SEARCHERS
from .user_code import run_module

DATA = Path(__file__).resolve().parent.parent.parent / "data"


def searcher_of(word: str) -> Maker:
    """A searcher of ours by its name, or the class that `FILE.py:CLASS` or `MODULE:CLASS` names, whose file is run.

    Raises TaskError when it is not there.
    """
    if word in SEARCHERS:
        return SEARCHERS[word]
    module_name, _, name = word.rpartition(":")
    law = f"{did_you_mean(word, SEARCHERS)}FILE.py:CLASS or one of {', '.join(SEARCHERS)} is needed"
    require(module_name, TaskError, f"searcher {word!r}", law)
    module = run_module(module_name)
    classes = [
        n for n, value in vars(module).items() if isinstance(value, type) and value.__module__ == module.__name__
    ]
    made = getattr(module, name, None)
    law = f"has no class {name!r}; {did_you_mean(name, classes)}its classes are {', '.join(classes) or 'none'}"
    require(callable(made), TaskError, module_name, law)
    return made  # type: ignore[return-value]


def matrices_in(places: Sequence[str]) -> list[Path]:
    """The `.npz` files at some places, files or folders; those of the checkout's `data/` when none is named.

    Raises TaskError where there are none.
    """
    law = "is in a checkout of the repository, and not in an installed package; name files that `ansor dataset` wrote"
    require(places or DATA.is_dir(), TaskError, "data/", law, looked_in=str(DATA))
    folders = [Path(place) for place in places] or [DATA]
    found = [file for one in folders for file in (sorted(one.glob("*.npz")) if one.is_dir() else [one])]
    missing = [str(file) for file in found if not file.is_file()]
    require(not missing, TaskError, "--data", "there is no such file", got=missing)
    law = "holds no .npz file; `ansor dataset LOG` writes them"
    require(found, TaskError, ", ".join(map(str, folders)), law)
    return found
