"""Swizzled tiles in shared memory: rows of 16-byte chunks, which trade places so that no bank is asked twice at once.

Shared memory has 32 banks of 4 bytes: a line of 128 bytes, 8 chunks.  Threads that read one chunk of several rows ask
for the same banks where rows are as long as lines, or powers of two.  So chunk c of a row goes to c ^ f, where f counts
lines, or rows that are longer:

    bytes of a row    chunks     f                     reading 8 rows, plain -> swizzled
    32                2          (row >> 2) & 1        2 times -> once
    64                4          (row >> 1) & 3        4 times -> once
    128 and more      8 ...      row & 7               8 times -> once

f does not change when chunks trade places, so a swizzle is its own inverse.  It moves whole chunks within their row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from te_lite.errors import LowerError, require

CHUNK_BYTES = 16
LINE = 8
"""Chunks in a line, which has a part in every bank."""


def can_be_swizzled(row: int) -> bool:
    """Whether rows of so many bytes can be swizzled: of 1, 2, 4 or a multiple of 8 chunks."""
    chunks, rest = divmod(row, CHUNK_BYTES)
    return rest == 0 and (chunks in (1, 2, 4) or (chunks > 0 and chunks % LINE == 0))


def line_of(row: int, nbytes: int) -> int:
    """The elements of a line of rows of so many elements: 128 bytes, or a shorter row that can be swizzled."""
    line = CHUNK_BYTES * LINE // nbytes
    return row if row < line and can_be_swizzled(row * nbytes) else line


@dataclass(frozen=True)
class Swizzle:
    """Of rows of `chunks` chunks of `width` elements."""

    width: int
    chunks: int

    @classmethod
    def of_rows(cls, name: str, elements: int, nbytes: int) -> Swizzle:
        """Of rows of `elements` elements of `nbytes` bytes.

        Raises LowerError unless these are 1, 2, 4 or a multiple of 8 chunks.
        """
        row = elements * nbytes
        law = "rows of 16, 32, 64 or a multiple of 128 bytes can be swizzled"
        require(can_be_swizzled(row), LowerError, name, law, bytes=row)
        return cls(CHUNK_BYTES // nbytes, row // CHUNK_BYTES)

    def place(self, index: Any, xor: Callable[[Any, Any], Any]) -> Any:
        """Where the element is that stands at `index`, counted in elements, without a swizzle."""
        chunk, within = index // self.width, index % self.width
        turn = chunk // max(LINE, self.chunks) % min(LINE, self.chunks)
        return xor(chunk, turn) * self.width + within
