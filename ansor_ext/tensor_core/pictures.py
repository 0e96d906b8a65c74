"""The pictures that `ansor draw` has of tensor cores: fragments, and swizzled rows."""

from __future__ import annotations

from typing import Any

from ansor.cli.draw import Picture

from .fragment_picture import draw_fragments
from .mma import MMA, mma
from .swizzle_picture import draw_swizzle


def _instruction(parser: Any) -> None:
    parser.add_argument("instruction", metavar="NAME", help=f"{', '.join(MMA)}")


def _row(parser: Any) -> None:
    parser.add_argument("bytes", metavar="BYTES", type=int, help="of a row: 16, 32, 64, or a multiple of 128")


def pictures() -> dict[str, Picture]:
    """The pictures by name."""
    return {
        "fragment": Picture(
            "which thread holds what of the tiles of an instruction of tensor cores",
            _instruction,
            lambda args: draw_fragments(mma(args.instruction)),
            of_program=False,
        ),
        "swizzle": Picture(
            "chunks of rows in shared memory, plain and swizzled",
            _row,
            lambda args: draw_swizzle(args.bytes),
            of_program=False,
        ),
    }
