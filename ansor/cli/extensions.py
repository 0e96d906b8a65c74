"""The option `--extensions` of commands that search or compile."""

from __future__ import annotations

import argparse
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from te_lite.extensions import ALL, BY_NAME, NONE, using

HELP = f"what to use beside the rules of Ansor's paper: {ALL} (default), {NONE}, or some of {', '.join(BY_NAME)}"


def add_extensions(parser: Any) -> None:
    """Add the option to a command."""
    parser.add_argument("--extensions", metavar="NAME,...", help=HELP)


def chosen_by(args: argparse.Namespace) -> AbstractContextManager[None]:
    """Within, the extensions that a command asks for are used.  Raises TeError for one that is unknown."""
    return nullcontext() if args.extensions is None else using(args.extensions)
