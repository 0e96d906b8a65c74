"""`ansor devices`: what programs can run on here; and the option `--devices` of the commands that tune."""

from __future__ import annotations

from typing import Any

from te_lite.errors import TeError, require

from ..core.errors import TaskError
from ..core.registry import known_kinds
from ..measure.devices import ALL, list_devices

NAME = "devices"
OPTION = "devices to measure on: all, or numbers as in 0,1 (default: the first one)"


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    commands.add_parser(NAME, help="list the devices of this machine")


def devices() -> int:
    """Print a line for each device, or one sentence for a target that has none here; gives the exit code."""
    for kind in known_kinds():
        try:
            found = list_devices(kind)
        except TeError as error:
            print(f"{kind:6}  -   {error}")
            continue
        for one in found:
            print(f"{kind:6}  {one.index}   {one.model}  ({one.detail})")
    return 0


def devices_of(text: str | None) -> str | list[int] | None:
    """The text of `--devices` as `LocalRunner` takes it.  Raises TaskError for a text that names no devices."""
    if text is None or text == ALL:
        return text
    parts = [p.strip() for p in text.split(",")]
    ok = all(p.isascii() and p.isdecimal() for p in parts)
    require(ok, TaskError, "--devices", "all, or numbers separated by commas are needed", got=text)
    return [int(p) for p in parts]
