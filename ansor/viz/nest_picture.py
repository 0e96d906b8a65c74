"""A loop nest as boxes in boxes: what is grey is nearer to the processor, and a frame says how iterations run."""

from __future__ import annotations

from collections.abc import Sequence

from te_lite.schedule.state import State

from .boxes import GAP, PAD, Box, column, stacked
from .nest import LoopBox, Node, ReadFact, StageBox, Statement, nest_of
from .svg import Svg, picture, shortened

MOST = 72
"""Letters of a line of text."""
STORED = {
    "global": "memory",
    "shared": "shared memory",
    "fragment": "registers of a warp",
    "local": "private to a thread",
}
FRAMES = {
    "none": "serial", "parallel": "parallel", "vectorize": "vector", "unroll": "unrolled", "vthread": "vthread",
    "tensorize": "instruction",
}  # fmt: skip
STYLE = """
rect.global { fill: #fff; stroke-width: 2 }
rect.shared { fill: #e6e6e6; stroke-width: 2 }
rect.local, rect.fragment { fill: #cfcfcf; stroke-width: 2 }
rect.statement { fill: #fff; stroke: none }
rect.parallel, rect.block { stroke-width: 4 }
rect.thread { stroke-width: 3; stroke-dasharray: 9 3 }
rect.vthread { stroke-width: 2; stroke-dasharray: 9 3 }
rect.unrolled { stroke-dasharray: 4 3 }
rect.vector { stroke-width: 2; stroke-dasharray: 2 2 }
rect.instruction { stroke-width: 2; stroke-dasharray: 9 3 2 3 }
"""


def draw_nest(state: State, title: str = "") -> Svg:
    """The loop nest of a state as an SVG file; extents that are undecided are written as `?`.

    Raises LowerError for a state without undecided lengths that has no loop nest.
    """
    heading = [Box("ground", (shortened(title, MOST),), kinds=("head",), title=title)] if title else []
    boxes = [*heading, *nest_boxes(nest_of(state))]
    return picture(*size_of(boxes), title or "loop nest", boxed(boxes), STYLE)


def nest_boxes(nest: Sequence[StageBox]) -> list[Box]:
    """A box for each stage at root."""
    return list(map(_box, nest))


def size_of(boxes: Sequence[Box]) -> tuple[float, float]:
    """The width and height of boxes below each other with a rim."""
    return max([box.width for box in boxes]) + 2 * PAD, stacked(boxes) + 2 * PAD - GAP


def boxed(boxes: Sequence[Box]) -> list[str]:
    """Boxes below each other with a rim."""
    return list(column(boxes, PAD, PAD, size_of(boxes)[0] - 2 * PAD))


def _box(node: Node) -> Box:
    match node:
        case StageBox(name=name, storage=storage):
            where = f"{extents_text(node.extents)}{STORED[storage]}"
            lines = (f"{shortened(name, MOST // 2)}: {where}", *node.marks)
            return Box(storage, lines, tuple(map(_box, node.inside)), kinds=("head",), title=name)
        case LoopBox():
            chain = _chain(node)
            lines = tuple([" " * k + _loop_text(loop) for k, loop in enumerate(chain)])
            title = "\n".join([loop.name for loop in chain])
            return Box(frame_of(node.annotation), lines, tuple(map(_box, chain[-1].inside)), title=title)
        case Statement():
            reads = [_read_text(read) for read in node.reads]
            lines = tuple([shortened(line, MOST) for line in (*node.lines, *reads)])
            return Box("statement", lines, title="\n".join(node.lines))


def _chain(loop: LoopBox) -> list[LoopBox]:
    """A loop, and those inside of it that run as it does and have nothing between them: they share a frame."""
    chain = [loop]
    while True:
        match chain[-1].inside:
            case (LoopBox(annotation=loop.annotation) as inner,):
                chain.append(inner)
            case _:
                return chain


def _loop_text(loop: LoopBox) -> str:
    turns = "?" if loop.turns is None else str(loop.turns)
    word = "for" if loop.annotation == "none" else loop.annotation
    return f"{word} {shortened(loop.name, MOST // 2)} in 0..{turns}{' (reduces)' if loop.reduces else ''}"


def _read_text(read: ReadFact) -> str:
    return f"  reads {shortened(read.name, MOST // 2)}: {extents_text(read.extents)}{STORED[read.storage]}"


def extents_text(extents: tuple[int, ...] | None) -> str:
    """`64 x 8, `; nothing where it is not known."""
    return "" if extents is None else f"{' x '.join(map(str, extents)) or 'one element'}, "


def frame_of(annotation: str) -> str:
    """The class of the frame of a loop."""
    if annotation in FRAMES:
        return FRAMES[annotation]
    return "block" if annotation.startswith("blockIdx") else "thread"
