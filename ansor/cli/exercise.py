"""`ansor exercise`: small tasks that check themselves, in the folder `exercises` of a checkout."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from te_lite.errors import require

from ..core.errors import TaskError

NAME = "exercise"
FOLDER = Path(__file__).resolve().parent.parent.parent / "exercises"
ACTIONS = {
    "list": "show all exercises, and which are solved in this folder",
    "start": "copy the file with the hole into this folder; nothing is overwritten",
    "check": "run a file in a process of its own and say whether it solves the exercise",
    "hint": "say where to look",
}


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    parser = commands.add_parser("exercise", help="learn: small tasks that check themselves (in a checkout)")
    actions = parser.add_subparsers(dest="action", required=True)
    for action, text in ACTIONS.items():
        sub = actions.add_parser(action, help=text)
        if action != "list":
            sub.add_argument("name", metavar="NAME")
        if action == "check":
            sub.add_argument("file", nargs="?", metavar="FILE", help="the file to check (default: NAME.py)")
    parser.set_defaults(run=exercise)


def exercise(args: argparse.Namespace) -> int:
    """Hand the action to the exercises of the checkout.  Raises TaskError where ansor is not one."""
    law = "are in a checkout of the repository, and not in an installed package: clone it and `pip install -e .` there"
    require((FOLDER / "__main__.py").is_file(), TaskError, "the exercises", law, looked_in=str(FOLDER))
    words = [value for value in (vars(args).get("name"), vars(args).get("file")) if value is not None]
    return subprocess.run([sys.executable, str(FOLDER), args.action, *words], check=False).returncode
