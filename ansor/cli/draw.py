"""`ansor draw`: pictures of programs, as SVG files."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from te_lite.extensions import installed_part
from te_lite.lowering.lower import lower

from ..viz.banks_picture import draw_banks
from ..viz.dag_picture import draw_dag
from ..viz.nest_picture import draw_nest
from ..viz.steps_page import steps_page
from ..viz.tile import tile_of
from ..viz.tile_picture import draw_tile
from .drawn_program import SKETCH, add_task, program_of, task_of
from .user_code import add_import
from .workload import CATALOGUE
from .written import require_picture, write_picture


@dataclass(frozen=True)
class Picture:
    """A kind of picture: what the help says, its arguments, and how it is drawn; `of_program` names a workload or a
    log."""

    help: str
    arguments: Callable[[Any], None]
    draw: Callable[[argparse.Namespace], str]
    ending: str = "svg"
    of_program: bool = True


def _program(parser: Any) -> None:
    add_task(parser)
    parser.add_argument("--sketch", type=int, metavar="N", help=SKETCH)


def _nest(args: argparse.Namespace) -> str:
    drawn = program_of(args)
    return draw_nest(drawn.state, drawn.title)


def _dag(args: argparse.Namespace) -> str:
    task = task_of(args)
    return draw_dag(task.compute_dag, task.title)


def _steps(args: argparse.Namespace) -> str:
    drawn = program_of(args)
    return steps_page(drawn.state, drawn.title)


def _tile_arguments(parser: Any) -> None:
    _program(parser)
    parser.add_argument("--stage", help="the stage, by the name that `ansor draw nest` shows (default: the last one)")
    text = "a loop of the stage; a turn of it is the tile (default: its first loop with more than one turn)"
    parser.add_argument("--loop", help=text)


def _tile(args: argparse.Namespace) -> str:
    drawn = program_of(args)
    return draw_tile(tile_of(drawn.state, args.stage, args.loop), drawn.title)


def _banks(args: argparse.Namespace) -> str:
    drawn = program_of(args)
    return draw_banks(lower(drawn.state, drawn.task.compute_dag.tensors), drawn.title)


PICTURES: Mapping[str, Picture] = {
    "nest": Picture("the loop nest as boxes in boxes, and what each statement reads where", _program, _nest),
    "dag": Picture("the computation as a graph: a box for each tensor, an arrow to each that reads it", add_task, _dag),
    "steps": Picture("a page on a schedule: the loop nest before and after each step", _program, _steps, "html"),
    "tile": Picture("what a turn of a loop computes, and what it reads of the inputs", _tile_arguments, _tile),
    "banks": Picture("which thread of a warp asks which bank of shared memory, and where they queue", _program, _banks),
}
"""The pictures by name; extensions have more of them."""


def _pictures() -> dict[str, Picture]:
    """All pictures by name."""
    more = installed_part("pictures")
    return {**PICTURES, **({} if more is None else more())}


def add_parser(commands: Any) -> None:
    """Add the command to the subcommands of a parser."""
    parser = commands.add_parser("draw", help="draw a program, its computation or its memory, as SVG")
    parser.set_defaults(run=draw)
    kinds = parser.add_subparsers(dest="picture", required=True)
    for name, picture in _pictures().items():
        _add(kinds, name, picture)


def _add(kinds: Any, name: str, picture: Picture) -> None:
    parser = kinds.add_parser(name, help=picture.help, description=picture.help)
    picture.arguments(parser)
    if picture.of_program:
        parser.epilog, parser.formatter_class = CATALOGUE, argparse.RawDescriptionHelpFormatter
    output = f"{name}.{picture.ending}"
    parser.add_argument("-o", "--output", default=output, help=f"the file to write (default: {output})")
    if picture.of_program:
        add_import(parser)


def draw(args: argparse.Namespace) -> int:
    """Write one picture; gives the exit code."""
    require_picture(args.output)
    write_picture(args.output, _pictures()[args.picture].draw(args))
    return 0
