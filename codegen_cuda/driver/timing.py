"""Device timing: the time of kernels, not of the calls that queue them.

A call from Python costs about 5 us, more than many kernels run.  So a kernel that spins until the host lets go is
queued first, the calls to be timed are queued behind it between two events, and then the host lets go: the calls
run back to back.  A batch is as many calls as fill about a millisecond; batches are repeated until the median is
known to half a per cent, or until the time budget is spent.  The first batch warms up and does not count.

Long programs, of a millisecond and more, are called as seldom as their place in the search allows.  A batch is one
call, and what is clearly slower than the best needs to be known less well: to a twentieth of its distance.  A first
call of at least 1.5 ms, the one whose output was checked, tells what is hopeless, and warms up; else two calls do.

    a long program                                calls after the checked one
    above 3 times the best, and half a ms more    none: its time is that of the checked one
    above 1.1 times the best                      2, and more until they agree
    else                                          5, and more until they agree to half a per cent, as for short ones;
                                                  3 that agree are enough when they spend the time budget
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

SPIN_SOURCE = """
extern "C" __global__ void spin(volatile int *go, long long limit) {
  const long long start = clock64();
  while (*go == 0 && clock64() - start < limit) {}
}
"""
SPIN_CYCLES = 200_000_000
BATCH_SECONDS = 1e-3
MAX_QUEUE = 900
MIN_BATCHES = 5
MAX_BATCHES = 50
SPREAD = 0.005
HOPELESS = 3.0
NEAR = 1.1
FAR_BATCHES = 2
SHORT_BATCHES = 3
COLD_SECONDS = 5e-4
"""How much longer the first call of a loaded program may take than later ones, at most."""
HOST_SHARE = 0.05
FLUSH_BYTES = 1 << 28


@dataclass(frozen=True)
class Wanted:
    """What a timing shall be: `repeat` timings, each of at least `number` calls and about `seconds` at most.

    With `flush` the caches are emptied before each call.  `best` is the time of the best program for the same task,
    infinite where none is known: what is slower may be timed with fewer calls.
    """

    number: int
    repeat: int
    seconds: float
    flush: bool = False
    best: float = math.inf


@dataclass(frozen=True)
class FirstCall:
    """A call that no spinning kernel held back: the `seconds` between its events, in which the host took `queueing`."""

    seconds: float
    queueing: float

    @property
    def is_long(self) -> bool:
        """Whether the device ran it for a millisecond and more, whatever the host did meanwhile."""
        measured = self.queueing <= HOST_SHARE * self.seconds
        return measured and self.seconds - COLD_SECONDS >= BATCH_SECONDS


class Stopwatch:
    """Measures what a function queues; `cubin` is `SPIN_SOURCE` compiled for the device."""

    def __init__(self, cuda: Any, cubin: bytes) -> None:
        self._cuda = cuda
        self._module = cuda.module_from_buffer(cubin)
        self._spin = self._module.get_function("spin")
        self._spin.prepare("Pq")
        self._go = cuda.pagelocked_zeros(1, np.int32, mem_flags=cuda.host_alloc_flags.DEVICEMAP)
        self._go_pointer = int(self._go.base.get_device_pointer())
        self._start, self._stop = cuda.Event(), cuda.Event()
        self._flush: Any = None

    def batch(self, queue: Callable[[], None], count: int, flush: bool = False) -> float:
        """Seconds per call of `count` calls that run back to back."""
        self._go[0] = 0
        self._spin.prepared_async_call((1, 1), (1, 1, 1), None, self._go_pointer, SPIN_CYCLES)
        if flush:
            self._empty_cache()
        self._start.record()
        for _ in range(count):
            queue()
        self._stop.record()
        self._go[0] = 1
        self._stop.synchronize()
        return float(self._start.time_till(self._stop)) * 1e-3 / count

    def _empty_cache(self) -> None:
        if self._flush is None:
            self._flush = self._cuda.mem_alloc(FLUSH_BYTES)
        self._cuda.memset_d32_async(int(self._flush), 0, FLUSH_BYTES // 4, None)

    def first(self, queue: Callable[[], None]) -> FirstCall:
        """Run what `queue` queues, and wait for the end."""
        begin = time.perf_counter()
        self._start.record()
        queue()
        self._stop.record()
        queueing = time.perf_counter() - begin
        self._stop.synchronize()
        return FirstCall(float(self._start.time_till(self._stop)) * 1e-3, queueing)

    def measure(
        self, queue: Callable[[], None], kernels: int, wanted: Wanted, first: FirstCall | None = None
    ) -> list[float]:
        """Seconds per call, `wanted.repeat` timings, each the median over batches.

        A call of `queue` launches `kernels` kernels (the device's queue is finite); `first` is one that was made just
        before.  A program that needs more than three times `wanted.best` gets one batch more, a long one none.
        """
        first = first if first is not None and first.is_long else None
        rough = self._rough(queue, wanted, first)
        if rough > HOPELESS * wanted.best:
            return [rough] * wanted.repeat
        if rough >= BATCH_SECONDS:
            return [self._long_figure(queue, wanted) for _ in range(wanted.repeat)]
        fill = math.ceil(BATCH_SECONDS / max(rough, 1e-7))
        count = 1 if wanted.flush else min(max(wanted.number, fill), MAX_QUEUE // kernels)
        return [self._figure(queue, count, wanted) for _ in range(wanted.repeat)]

    def _rough(self, queue: Callable[[], None], wanted: Wanted, first: FirstCall | None) -> float:
        """Seconds per call from a few calls; a timing that is hopeless is taken once more.

        A long first call is enough, unless being cold may be what makes it hopeless.
        """
        limit = HOPELESS * wanted.best
        if first is not None:
            doubtful = first.seconds > limit >= first.seconds - COLD_SECONDS
            return self.batch(queue, 1, wanted.flush) if doubtful else first.seconds
        rough = self.batch(queue, 1 if wanted.flush else 2, wanted.flush)
        return self.batch(queue, 1 if wanted.flush else 3, wanted.flush) if rough > limit else rough

    def _figure(self, queue: Callable[[], None], count: int, wanted: Wanted) -> float:
        self.batch(queue, count, wanted.flush)
        times: list[float] = []
        while len(times) < MAX_BATCHES:
            times.append(self.batch(queue, count, wanted.flush))
            if len(times) >= MIN_BATCHES and (_converged(times, SPREAD) or sum(times) * count >= wanted.seconds):
                break
        return statistics.median(times)

    def _long_figure(self, queue: Callable[[], None], wanted: Wanted) -> float:
        """Single calls of a program that is warm; the fewer, the slower it is (see the module)."""
        times: list[float] = []
        while len(times) < max(MAX_BATCHES, wanted.number) and not _enough(times, wanted):
            times.append(self.batch(queue, 1, wanted.flush))
        return statistics.median(times)


def _enough(times: list[float], wanted: Wanted) -> bool:
    """Whether single calls of a long program took these `times` often enough."""
    if len(times) < FAR_BATCHES:
        return False
    distance = statistics.median(times) / wanted.best
    spent, converged = sum(times) >= wanted.seconds, _converged(times, max(SPREAD, (distance - 1) / 20))
    least = FAR_BATCHES
    if distance <= NEAR:
        least = max(wanted.number, SHORT_BATCHES if spent and converged else MIN_BATCHES)
    return len(times) >= least and (spent or converged)


def _converged(times: list[float], spread: float) -> bool:
    """Whether half of the batches lie within `spread` of the median."""
    middle = statistics.median(times)
    off = sorted(abs(t - middle) for t in times)
    return off[len(off) // 2] <= spread * middle
