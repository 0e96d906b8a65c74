"""One program for each set of shapes and weights, in a cache of bounded size.

A program holds what it was made of: weights are folded into it, and a weight that was written to since (PyTorch counts
that) or exchanged for another one gets a program of its own.  Nothing is measured for it again where that was done for
a program of the same shapes, of inputs and weights, and a log or the store holds what was found: who writes to a weight
does not wait for a budget, not even where the first one ended before it came to all kernels.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from ansor.records.store import stores

from .options import Options

Run: TypeAlias = Callable[..., Any]
MOST_PROGRAMS = 16
"""Programs of one graph that are kept; the one that was not used for longest goes."""
MOST_MEASURED = 1024
"""Kinds of programs that are known to be measured.  They are small, and to forget one costs a budget."""


class Made(NamedTuple):
    """What runs, the weights that it was made of, and whether it is made with records again (`partition.Kept`)."""

    run: Run
    weights: Sequence[Any]
    records: bool = True


Make: TypeAlias = Callable[[Options], tuple[Any, ...]]
"""Gives the fields of a `Made`."""


def counted(weights: Sequence[Any]) -> list[Any]:
    """The weights of which PyTorch counts how often they are written to: all but those made in inference mode."""
    return [w for w in weights if not w.is_inference()]


@dataclass(frozen=True, eq=False)
class Entry:
    """What runs, the weights that it was made of, those that are watched, and how often they were written to."""

    run: Run
    weights: Sequence[Any]
    watched: Sequence[Any]
    written: list[int]


class Programs:
    """The programs of one graph, made with these options: at most `most`, and of at most `most_measured` kinds it is
    known that they were measured.
    """

    def __init__(self, options: Options, most: int = MOST_PROGRAMS, most_measured: int = MOST_MEASURED) -> None:
        self.options, self.most, self.most_measured = options, most, most_measured
        self._measured: OrderedDict[int, Options] = OrderedDict()
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._entries)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what is read back from a file, has no programs yet: they hold addresses of this process."""
        return Programs, (self.options, self.most, self.most_measured)

    def get(self, shapes: Hashable, weights: Hashable, make: Make, given: Callable[[], Iterable[Any]]) -> Run:
        """The program for shapes and weights; `make` gives one, and what it was made of.

        It is asked where there is none, or its weights were written to, with the options to be made with; `given` says
        then which weights there are.
        """
        with self._lock:
            return self._get(shapes, (shapes, weights), make, given)

    def _get(self, shapes: Hashable, key: Hashable, make: Make, given: Callable[[], Iterable[Any]]) -> Run:
        found = self._entries.get(key)
        if found is None or found.written != [w._version for w in found.watched]:
            kind = hash((shapes, tuple([(w.shape, w.dtype, w.device) for w in given()])))
            made = self._made(kind, make)
            watched = counted(made.weights)
            found = Entry(made.run, tuple(made.weights), watched, [w._version for w in watched])
            self._entries[key] = found
        self._entries.move_to_end(key)
        while len(self._entries) > self.most:
            self._entries.popitem(last=False)
        return found.run

    def _made(self, kind: int, make: Make) -> Made:
        """A program, without measurements where they were made, and their records are kept."""
        kept = self.options.log is not None or stores()
        known = self._measured.get(kind) if kept else None
        made = Made(*make(self.options if known is None else known))
        if known is None and self.options.measures:
            again = self.options.again
            self._measured[kind] = again if made.records else replace(again, records=False)
        if kind in self._measured:
            self._measured.move_to_end(kind)
        while len(self._measured) > self.most_measured:
            self._measured.popitem(last=False)
        return made
