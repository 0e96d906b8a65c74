"""`ansor store`: the records that are used without naming a log (docs/store.md)."""

from __future__ import annotations

import argparse
from typing import Any

from te_lite.errors import require

from ..core.errors import NoRecordError, TaskError
from ..core.values.checks import counted
from ..measure.progress import seconds_text
from ..records.journal import replace_file
from ..records.store import stores
from ..records.store_files import exported, held, take_in
from .user_code import add_import
from .written import checked_log

NAME = "store"


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    parser = commands.add_parser("store", help="the records that are used without naming a log")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("list", help="what it holds, by device")
    export = actions.add_parser("export", help="write the best record of each computation into a new log")
    export.add_argument("log")
    export.add_argument("--device", help="the device, as `list` calls it, where there are several")
    taken = actions.add_parser("import", help="take in the best few records of each workload of a log")
    taken.add_argument("log", help="a log that was measured on a device like that of this machine")
    add_import(parser)
    parser.set_defaults(run=store)


def store(args: argparse.Namespace) -> int:
    """Run the command; gives its exit code.  Raises TaskError where the store is off."""
    require(stores(), TaskError, NAME, "is switched off by ANSOR_CACHE=off")
    match args.action:
        case "list":
            _list()
        case "export":
            _export(args.log, args.device)
        case _:
            taken = take_in(args.log)
            require(taken, NoRecordError, args.log, "holds no valid record")
            held_in = f"{counted(sum(taken.values()), 'record')} of {counted(len(taken), 'computation')}"
            print(f"{stores()[0]}: took in {held_in}")
    return 0


def _list() -> None:
    device = ""
    for one in held():
        if one.device != device:
            device = one.device
            print(device)
        best = seconds_text(one.records[0][1].cost)
        print(f"  {one.title} for {one.target}: {best}, {counted(len(one.records), 'program')} ({one.made_by})")
    if not device:
        print(f"no records in {', '.join(map(str, stores()))}")


def _export(log: str, device: str | None) -> None:
    devices = list(dict.fromkeys([one.device for one in held()]))
    require(devices, NoRecordError, NAME, "holds no record")
    chosen = devices[0] if device is None and len(devices) == 1 else device
    law = f"a log is of one device, name it: {'; '.join(devices)}"
    require(chosen in devices, TaskError, "--device", law, got=device)
    path = checked_log(log)
    require(not path.exists(), TaskError, log, "is there already; name a new log")
    assert chosen is not None
    lines = exported(chosen)
    replace_file(path, lines)
    print(f"{path}: {counted(len([line for line in lines if line[:1] == '{']), 'record')} of {chosen}")
