"""`ansor devices`: what programs can run on here; and the option `--devices` of the commands that tune."""

from __future__ import annotations

from typing import Any

from te_lite.errors import TeError, require

from ..core.device.backend import Backend, backend
from ..core.errors import TaskError
from ..core.target.hardware import HardwareParams
from ..core.target.registry import entry_of, known_kinds
from ..core.target.target import Target
from ..measure.devices import ALL, choose_devices, list_devices, wanted_devices

OPTION = "devices to measure on: all, or numbers as in 0,1 (default: the first one)"


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    commands.add_parser("devices", help="list the devices of this machine").set_defaults(run=devices)


def devices(_: Any) -> int:
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


def check_devices(kind: str, devices: str | list[int] | None) -> None:
    """Raise MeasureError when devices of a target kind that are asked for are not there, or differ."""
    if devices is not None:
        choose_devices(kind, wanted_devices("--devices", devices))


def hardware_of(target: Target) -> HardwareParams | None:
    """The numbers of the first device of a target that names no model, where its backend knows them; else None.

    Raises the backend's error when there is no device.
    """
    kind = target.kind.name
    asks = not target.model and entry_of(kind).hardware is None
    tells = asks and type(backend(kind)).hardware is not Backend.hardware
    return HardwareParams.from_device(target) if tells else None


def devices_of(text: str | None) -> str | list[int] | None:
    """The text of `--devices` as `LocalRunner` takes it.  Raises TaskError for a text that names no devices."""
    if text is None or text == ALL:
        return text
    parts = [p.strip() for p in text.split(",")]
    ok = all(p.isascii() and p.isdecimal() for p in parts)
    require(ok, TaskError, "--devices", "all, or numbers separated by commas are needed", got=text)
    return [int(p) for p in parts]
