"""One program for each set of shapes and weights, in a cache of bounded size.

A program holds what it was made of: weights are folded into it, and a weight that was written to since (PyTorch counts
that) or exchanged for another one gets a program of its own.  Nothing is measured for it again where that was done for
a program of the same shapes, of inputs and weights, and a log or the store holds what was found.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ansor.records.store import stores

from .options import Options

Run: TypeAlias = Callable[..., Any]
Make: TypeAlias = Callable[[Options], tuple[Run, Sequence[Any]]]
MOST_PROGRAMS = 16
"""Programs of one graph that are kept; the one that was not used for longest goes."""


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
    """The programs of one graph, made with these options."""

    def __init__(self, options: Options, most: int = MOST_PROGRAMS) -> None:
        self.options, self.most = options, most
        self._measured: set[int] = set()
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._entries)

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
            run, weights = make(self._options(kind))
            self._measured.add(kind)
            watched = counted(weights)
            found = self._entries[key] = Entry(run, tuple(weights), watched, [w._version for w in watched])
        self._entries.move_to_end(key)
        while len(self._entries) > self.most:
            self._entries.popitem(last=False)
        return found.run

    def _options(self, kind: int) -> Options:
        """Without measurements where they were made, and their records are kept."""
        kept = self.options.log is not None or stores()
        return self.options.again if kind in self._measured and kept else self.options
