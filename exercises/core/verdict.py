"""The verdict on an answer: nothing when it is right, else one sentence that helps."""

from __future__ import annotations

import importlib
import importlib.util
import traceback
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from te_lite.errors import TeError

UNUSABLE = "the check cannot use what the file gives: "


class Wrong(Exception):
    """What a check raises: one sentence for the learner."""


def need(ok: Any, sentence: str) -> None:
    """Raise `Wrong` with the sentence unless `ok`."""
    if not ok:
        raise Wrong(sentence)


def function(answer: ModuleType, name: str) -> Callable[..., Any]:
    """A function of the answer, whose result may not be the `...` of the starter."""
    found = vars(answer).get(name)
    need(callable(found), f"the file must keep a function or class `{name}`")
    assert callable(found)
    filled: Callable[..., Any] = found

    def call(*args: Any, **kwargs: Any) -> Any:
        result = filled(*args, **kwargs)
        need(result is not ..., f"`{name}` still has its hole: replace the `...`")
        need(result is not None, f"`{name}` gives nothing back: is there a `return`?")
        return result

    return call


def load(path: Path) -> ModuleType:
    """Run the learner's file as a module."""
    spec = importlib.util.spec_from_file_location(f"answer_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hint(name: str) -> str:
    """The hint of an exercise."""
    return " ".join(importlib.import_module(f"exercises.checks.{name}").HINT.split())


def verdict(name: str, path: Path) -> str | None:
    """Why the file does not solve the exercise, in one sentence; None when it does.

    Whatever the learner's code raises is told with its line; a sentence of a check is told as it is. What is raised
    elsewhere comes of values that are not of the kind that the statement asks for.
    """
    check = importlib.import_module(f"exercises.checks.{name}").check
    try:
        check(load(path))
    except Wrong as wrong:
        return str(wrong)
    except (Exception, SystemExit) as error:
        return f"{_place(error, path) or UNUSABLE}{_said(error)}"
    return None


def _said(error: BaseException) -> str:
    return str(error) if isinstance(error, TeError) else f"{type(error).__name__}: {error}"


def _place(error: BaseException, path: Path) -> str:
    """Where in the learner's file it happened; empty when it happened elsewhere."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: "
    own = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
    return f"line {own[-1]}: " if own else ""
