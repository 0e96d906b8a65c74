"""`ansor doctor`: what this installation can do, and what is missing, one line each."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Any

from te_lite.errors import TeError

from ..core.device.backend import backend
from ..core.target.hardware import host_cores
from ..core.target.registry import OWN_KINDS, known_kinds
from ..measure.noise import noise, warning

PACKAGES = {"numpy": ("numpy",), "networkx": ("networkx",), "rich": ("rich",), "xgboost": ("xgboost", "xgboost-cpu")}
Line = tuple[str, bool, str]


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    commands.add_parser("doctor", help="say what this installation can do").set_defaults(run=doctor)


def _package(name: str, distributions: tuple[str, ...]) -> Line:
    for distribution in distributions:
        try:
            return name, True, importlib.metadata.version(distribution)
        except importlib.metadata.PackageNotFoundError:
            continue
    return name, False, "is not installed"


def examine() -> tuple[list[Line], list[Line]]:
    """`(required, optional)`: name, whether it is in order, detail."""
    cores = f"{host_cores()} of {os.cpu_count()} usable, {platform.machine()}"
    required = [("Python", sys.version_info >= (3, 10), platform.python_version()), ("processor", True, cores)]
    required += [_package(name, names) for name, names in PACKAGES.items()]
    others = [line for kind in known_kinds() if kind not in OWN_KINDS for line in _target(kind)]
    return required + _target("c"), [*_target("cuda"), *others]


def _target(kind: str) -> list[Line]:
    """Whether programs of a kind run here, and what its backend reports."""
    name = f"target {kind}"
    try:
        found = backend(kind)
    except TeError as error:
        return [(name, False, str(error))]
    try:
        found.check(kind)
    except TeError as error:
        return [(name, False, str(error)), *[row for row in found.report() if row[2] != str(error)]]
    return [(name, True, "is there"), *found.report()]


def doctor(_: Any) -> int:
    """Print the findings, and how busy the machine is; 0 when everything required is in order, else 1."""
    required, optional = examine()
    for lines, bad in ((required, "MISSING"), (optional, "absent ")):
        for name, ok, detail in lines:
            print(f"{'ok     ' if ok else bad}  {name:12}  {detail}")
    found = noise()
    print(f"{'noisy  ' if found.noisy else 'ok     '}  {'quietness':12}  {warning(found) or found}")
    return 0 if all(ok for _, ok, _ in required) else 1
