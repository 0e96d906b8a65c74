"""Findings of the block emulator, each at a thread and a source line, and the error that carries them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from te_lite.errors import TeError

Index = tuple[int, int, int]


@dataclass(frozen=True)
class Finding:
    """One forbidden thing that a thread did.

    `kind` is "out of bounds", "race", "uninitialised", "misaligned", "divergence", "division", "crash", "deadlock", or,
    of barriers in shared memory, the copy engine and blocks that have ended, "barrier", "copy" or "cluster"; `line`
    counts the kernel's source from 1, `other_line` is that of the earlier access of a race; None where it is not known.
    """

    kind: str
    kernel: str
    block: Index
    thread: Index
    line: int | None
    other_line: int | None
    text: str

    def __str__(self) -> str:
        line = f" line {self.line}" if self.line else ""
        other = f" (at line {self.other_line})" if self.other_line else ""
        return f"{self.kernel}{line}: {self.kind}: thread {self.thread} of block {self.block} {self.text}{other}"


@dataclass(frozen=True)
class Report:
    """A run without findings: `accesses` to shared and global memory that were looked at, and its wall time."""

    accesses: int
    seconds: float


class EmulatorError(TeError):
    """A kernel that cannot be emulated, or one that did something forbidden: then `findings` says all of it."""

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


Lines = Callable[[Sequence[int]], dict[int, int | None]]


def read_answer(answer: str, lines: Lines) -> int:
    """The number of accesses in the host's `answer`; `lines` gives the source lines of offsets in the library.

    Raises EmulatorError when the answer holds findings, an error, or does not end.
    """
    rows = [row.split("\t") for row in answer.splitlines()]
    for row in rows:
        if row[0] == "error":
            raise EmulatorError(f"emulator: {row[1]}")
    findings = _findings([row for row in rows if row[0] == "finding"], lines)
    if findings:
        more = f"; {len(findings) - 1} more" if len(findings) > 1 else ""
        raise EmulatorError(f"emulator: {findings[0]}{more}", findings)
    if not rows or rows[-1][0] != "done":
        raise EmulatorError(f"emulator: the run ended without an answer after {answer[-200:]!r}")
    return int(rows[-1][1])


def _findings(rows: Sequence[Sequence[str]], lines: Lines) -> list[Finding]:
    offsets = {int(x, 16) for row in rows for x in row[5:7]} - {0}
    at = {0: None} | (lines(sorted(offsets)) if rows else {})
    return [_finding(row, at) for row in rows]


def _finding(row: Sequence[str], at: dict[int, int | None]) -> Finding:
    _, kind, kernel, block, thread, pc, other, line, text = row
    return Finding(kind, kernel, _index(block), _index(thread), int(line) or at[int(pc, 16)], at[int(other, 16)], text)


def _index(text: str) -> Index:
    x, y, z = map(int, text.split())
    return x, y, z
