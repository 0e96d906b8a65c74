"""Threads to elements of shared memory: which thread of a warp asks which bank for which word, and where they queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from te_lite.errors import LowerError, require
from te_lite.loops.stmt import LoweredFunc

from .accesses import Access, accesses
from .banks import BANK_BYTES, BANKS
from .boxes import PAD
from .svg import LINE, Svg, picture, rectangle, shortened, text

WIDE, HIGH, LEFT = 28, 17, 74
"""Pixels of a cell, and of what stands left of the cells."""
MOST = 6
"""Panels of a picture."""
MOST_TITLE = 100
STYLE = """
rect.free { stroke: #bbb; stroke-width: 0.5 }
rect.asked { fill: #e0e0e0; stroke: #888 }
rect.queue { fill: #333 }
"""
LEGEND = (
    "a row is 128 bytes, a column a bank of 4; numbers are threads (3+7: thread 3 and seven more, served at once)",
    "of the first warp in the first turn of all other loops; black: words of a bank served one after the other",
)


@dataclass(frozen=True)
class Request:
    """The threads of an access that are served together at best: the words they ask for, by number, and who asks."""

    words: dict[int, tuple[int, ...]]

    @property
    def banks(self) -> Counter[int]:
        """How many different words are asked of each bank."""
        return Counter([word % BANKS for word in self.words])

    @property
    def turns(self) -> int:
        """How often memory must be asked."""
        return max(self.banks.values(), default=1)


def worst_request(asked: Mapping[int, int], nbytes: int) -> Request:
    """Of threads that ask for `nbytes` bytes at a place each, that group which needs most iterations, the first of
    them.

    Groups are those of `bank_conflicts`.
    """
    listed = list(asked.items())
    group = BANKS * BANK_BYTES // max(nbytes, BANK_BYTES)
    found = [_request(listed[k : k + group], nbytes) for k in range(0, len(listed), group)]
    return max(found, key=lambda request: request.turns, default=Request({}))


def _request(asked: Sequence[tuple[int, int]], nbytes: int) -> Request:
    words: dict[int, dict[int, None]] = {}
    for thread, start in asked:
        for byte in range(0, nbytes, BANK_BYTES):
            words.setdefault((start + byte) // BANK_BYTES, {})[thread] = None
    return Request({word: tuple(threads) for word, threads in sorted(words.items())})


def draw_banks(func: LoweredFunc, title: str = "") -> Svg:
    """The accesses of shared memory as an SVG file, those with most conflicts first.

    Raises LowerError for a program that has none.
    """
    panels = shared_accesses(func)
    require(panels, LowerError, title or func.name, "no thread reads or writes shared memory in this program")
    parts, y = [text(PAD, PAD + 12, shortened(title, MOST_TITLE), kind="head")], PAD + 2.0 * LINE
    for access in panels[:MOST]:
        request = worst_request(access.asked(), access.nbytes)
        parts += _panel(access, request, y)
        y += LINE * 3 + HIGH * len(_rows(request)) + LINE
    if len(panels) > MOST:
        parts.append(text(PAD, y, f"and {len(panels) - MOST} more accesses, with fewer conflicts"))
        y += LINE
    parts += [text(PAD, y + LINE * k, line) for k, line in enumerate(LEGEND)]
    return picture(LEFT + WIDE * BANKS + 2 * PAD, y + LINE * len(LEGEND), title or "banks", parts, STYLE)


def shared_accesses(func: LoweredFunc) -> list[Access]:
    """The different accesses of shared memory by threads, most conflicts first."""
    found: dict[object, Access] = {}
    for access in accesses(func):
        if access.buffer.storage == "shared" and any(loop.tag for loop in access.loops):
            found.setdefault((access.buffer.name, access.writes, tuple(access.asked().items()), access.nbytes), access)
    return sorted(found.values(), key=lambda access: -access.conflicts)


def _rows(request: Request) -> list[int]:
    return sorted({word // BANKS for word in request.words})


def _panel(access: Access, request: Request, y: float) -> Iterator[str]:
    verb = "writes" if access.writes else "ldmatrix reads" if access.rows else "reads"
    turns = "no conflict" if request.turns == 1 else f"asked {request.turns} times"
    yield text(PAD, y, f"{verb} {access.buffer.name}, {access.nbytes} bytes a thread: {turns}", kind="head")
    top = y + LINE
    for bank in range(BANKS):
        yield text(LEFT + WIDE * (bank + 0.5), top, str(bank), "middle", "small")
    rows, queued = _rows(request), {b for b, n in request.banks.items() if n == request.turns > 1}
    for k, row in enumerate(rows):
        at = top + 5 + HIGH * k
        yield text(LEFT - 8, at + 12, f"{row * BANKS * BANK_BYTES}:", "end")
        for bank in range(BANKS):
            yield from _cell(request.words.get(row * BANKS + bank, ()), bank in queued, LEFT + WIDE * bank, at)


def _cell(threads: Sequence[int], queued: bool, x: float, y: float) -> Iterator[str]:
    kind = "queue" if threads and queued else "asked" if threads else "free"
    title = f"threads {', '.join(map(str, threads))}" if threads else ""
    yield rectangle(kind, x, y, WIDE, HIGH, title)
    if threads:
        more = f"+{len(threads) - 1}" if len(threads) > 1 else ""
        yield text(x + WIDE / 2, y + 12, f"{threads[0]}{more}", "middle", "small light" if queued else "small")
