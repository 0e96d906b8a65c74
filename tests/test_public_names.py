"""docs/public_names.md lists every public name, the parameters that it promises, and every option of the command."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from ansor.cli.main import _parser

DOCUMENT = Path(__file__).parent.parent / "docs" / "public_names.md"
SECTION = re.compile(r"^## `([\w.]+)`\n(.*?)(?=^## |\Z)", re.DOTALL | re.MULTILINE)
ENTRY = re.compile(r"`([\w.]+)(?:\(([^)`]*)\))?`")
MODULES = ("ansor", "te_lite", "te_lite.topi", "te_lite.topi.nn", "relay_lite")
Entry = tuple[str, tuple[str, ...] | None]
Kind = inspect.Parameter


def entries(text: str) -> list[Entry]:
    """Names with their parameters (None: none are promised)."""
    found = ENTRY.findall(text)
    calls = set(re.findall(r"`([\w.]+)\(", text))
    return [(name, tuple(filter(None, params.split(", "))) if name in calls else None) for name, params in found]


def lists(module: str) -> tuple[list[Entry], list[Entry]]:
    """What stays and what may change of a module."""
    text = dict(SECTION.findall(DOCUMENT.read_text()))[module]
    stays, _, changes = text.partition("May change:")
    return entries(stays), entries(changes)


@pytest.mark.parametrize("module", MODULES)
def test_every_name_is_listed_once(module: str) -> None:
    stays, changes = lists(module)
    listed = [name for name, _ in (*stays, *changes) if "." not in name]
    assert sorted(listed) == sorted(set(listed)), "a name is listed twice"
    public = set(import_module(module).__all__)
    assert public - set(listed) == set(), "list these in docs/public_names.md, under Stays or May change"
    assert set(listed) - public == set(), "these are gone: one that stays must warn for a release first"


def promised() -> Iterator[Any]:
    for module in MODULES:
        for name, params in lists(module)[0]:
            if params is not None:
                yield pytest.param(module, name, params, id=f"{module}.{name}")


def broken(given: inspect.Signature, params: tuple[str, ...]) -> str:
    """What of a promise a signature does not keep; empty when it keeps all."""
    stars = {Kind.VAR_POSITIONAL: "*", Kind.VAR_KEYWORD: "**"}
    known = [(f"{stars.get(p.kind, '')}{n}", p) for n, p in given.parameters.items() if n not in ("self", "cls")]
    if tuple([name for name, _ in known[: len(params)]]) != params:
        return f"its parameters are {', '.join(name for name, _ in known)}"
    needed = [name for name, p in known[len(params) :] if p.default is Kind.empty and p.kind not in stars]
    return f"new parameters have no default: {', '.join(needed)}" if needed else ""


@pytest.mark.parametrize(("module", "name", "params"), list(promised()))
def test_what_stays_keeps_its_parameters(module: str, name: str, params: tuple[str, ...]) -> None:
    thing = import_module(module)
    for part in name.split("."):
        thing = getattr(thing, part)
    assert broken(inspect.signature(thing), params) == ""  # type: ignore[arg-type]


def test_a_broken_promise_is_seen() -> None:
    def f(a: int, b: int = 2, *, c: int = 3) -> None: ...

    signature = inspect.signature(f)
    assert broken(signature, ("a",)) == broken(signature, ("a", "b", "c")) == ""
    assert broken(signature, ("b",)) == broken(signature, ("a", "b", "c", "d")) == "its parameters are a, b, c"
    assert broken(signature, ()) == "new parameters have no default: a"


def commands(name: str, parser: argparse.ArgumentParser) -> Iterator[tuple[str, list[str]]]:
    """Each command with its arguments and options."""
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    own = [a for a in parser._actions if not isinstance(a, argparse._HelpAction | argparse._SubParsersAction)]
    if not below:
        yield name, [a.option_strings[-1] if a.option_strings else str(a.metavar or a.dest).upper() for a in own]
    for action in below:
        for word, inner in action.choices.items():
            yield from commands(f"{name} {word}", inner)


def test_the_command_has_these_options() -> None:
    rows = re.findall(r"^\| `(ansor [\w -]+)` \|(.*)\|$", DOCUMENT.read_text(), re.MULTILINE)
    listed = {name: re.findall(r"`([^`]+)`", options) for name, options in rows}
    assert listed == dict(commands("ansor", _parser()))
