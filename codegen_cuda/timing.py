"""Time kernels on the device, not the calls that queue them.

A call from Python costs about 5 us, more than many kernels run.  So a kernel that spins until the host lets go is
queued first, the calls to be timed are queued behind it between two events, and then the host lets go: the calls
run back to back.  A batch is as many calls as fill about a millisecond; batches are repeated until the median is
known to half a per cent, or until the time budget is spent.  The first batch warms up and does not count.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
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
FLUSH_BYTES = 1 << 28


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

    def measure(
        self,
        queue: Callable[[], None],
        kernels: int,
        number: int,
        repeat: int,
        budget_seconds: float,
        flush: bool,
        best: float,
    ) -> list[float]:
        """Seconds per call, `repeat` figures, each the median over batches of at least `number` calls.

        A call of `queue` launches `kernels` kernels (the device's queue is finite).  A program that needs more than
        three times `best` gets one batch; a figure takes `budget_seconds` at most, or `MIN_BATCHES` batches when those
        take longer.
        """
        rough = self._rough(queue, flush, best)
        if rough > HOPELESS * best:
            return [rough] * repeat
        count = 1 if flush else min(max(number, math.ceil(BATCH_SECONDS / max(rough, 1e-7))), MAX_QUEUE // kernels)
        return [self._figure(queue, count, budget_seconds, flush) for _ in range(repeat)]

    def _rough(self, queue: Callable[[], None], flush: bool, best: float) -> float:
        """Seconds per call from a few calls; a figure that is hopeless is taken once more."""
        rough = self.batch(queue, 1 if flush else 2, flush)
        return self.batch(queue, 1 if flush else 3, flush) if rough > HOPELESS * best else rough

    def _figure(self, queue: Callable[[], None], count: int, budget_seconds: float, flush: bool) -> float:
        self.batch(queue, count, flush)
        times: list[float] = []
        while len(times) < MAX_BATCHES:
            times.append(self.batch(queue, count, flush))
            if len(times) >= MIN_BATCHES and (_settled(times) or sum(times) * count >= budget_seconds):
                break
        return statistics.median(times)


def _settled(times: list[float]) -> bool:
    """Whether half of the batches lie within half a per cent of the median."""
    middle = statistics.median(times)
    off = sorted(abs(t - middle) for t in times)
    return off[len(off) // 2] <= SPREAD * middle
