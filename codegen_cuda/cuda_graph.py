"""Launches recorded once and replayed as one: CUDA graphs, through the driver's own functions.

PyCUDA has no graphs, so the few functions that are needed are called through ctypes; streams, modules and memory stay
PyCUDA's.  A replay costs one call, and kernels inside follow each other within about a microsecond.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from te_lite.errors import require

from .early_launch import begin_early
from .errors import DeviceError

RELAXED = 2
"""Capture mode: memory may be released meanwhile, by this thread (the garbage collector does) and by others."""
NON_BLOCKING = 1
"""Stream flag: work on the default stream does not touch the stream while it is captured."""


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    """The driver's library, loaded once a process.  Raises DeviceError when it is missing or knows no graphs."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise DeviceError(f"CUDA graph: the driver's library libcuda.so.1 cannot be loaded, {error}") from error
    needed = ("cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags", "cuGraphLaunch",
              "cuGraphDestroy", "cuGraphExecDestroy")  # fmt: skip
    missing = [name for name in needed if not hasattr(library, name)]
    require(not missing, DeviceError, "CUDA graph", "a driver of CUDA 11.4 or later is needed", missing=missing)
    return library


def _check(code: int, what: str) -> None:
    if code:
        name = ctypes.c_char_p()
        _driver().cuGetErrorName(code, ctypes.byref(name))
        raise DeviceError(f"CUDA graph: {what} failed, {(name.value or b'an unknown error').decode()}")


class Fork:
    """Several streams that are recorded together with the stream `first`; use it through `record_forked`."""

    def __init__(self, cuda: Any, first: Any) -> None:
        self._cuda = cuda
        self._streams = [first]
        self._start = self._mark(first)
        self._ends: list[Any] = []
        self._last = [-1]

    def _mark(self, stream: Any) -> Any:
        event = self._cuda.Event(self._cuda.event_flags.DISABLE_TIMING)
        event.record(stream)
        return event

    @contextmanager
    def step(self, stream: int, waits: Sequence[int]) -> Iterator[Any]:
        """The stream to queue the next step on; `waits` are numbers of earlier steps, `stream` at most one new."""
        if stream == len(self._streams):
            self._streams.append(self._cuda.Stream(NON_BLOCKING))
            self._streams[-1].wait_for_event(self._start)
            self._last.append(-1)
        queue = self._streams[stream]
        for step in waits:
            queue.wait_for_event(self._ends[step])
        yield queue
        self._last[stream] = len(self._ends)
        self._ends.append(self._mark(queue))

    def join(self) -> None:
        """Let the first stream wait for all others."""
        for step in self._last[1:]:
            self._streams[0].wait_for_event(self._ends[step])


def record_forked(cuda: Any, stream: Any, record: Callable[[Fork], None]) -> None:
    """Record steps on several streams, which begin and end with `stream`."""
    fork = Fork(cuda, stream)
    record(fork)
    fork.join()


class LaunchGraph:
    """What `record(stream)` queues on a stream, to be queued again with one call.

    Kernels and asynchronous copies can be recorded; memory addresses are those of the recording.  With `early` all
    kernels wait for themselves, and are launched ahead (`early_launch.py`).  Raises DeviceError when the driver
    refuses.
    """

    def __init__(self, cuda: Any, record: Callable[[Any], None], early: bool = False) -> None:
        self._executable = ctypes.c_void_p()
        stream = cuda.Stream(NON_BLOCKING)
        handle, graph = ctypes.c_void_p(int(stream.handle)), ctypes.c_void_p()
        _check(_driver().cuStreamBeginCapture_v2(handle, RELAXED), "the beginning of the recording")
        try:
            record(stream)
        finally:
            code = _driver().cuStreamEndCapture(handle, ctypes.byref(graph))
        _check(code, "the end of the recording")
        try:
            if early:
                begin_early(_driver(), graph, _check)
            code = _driver().cuGraphInstantiateWithFlags(ctypes.byref(self._executable), graph, ctypes.c_ulonglong(0))
            _check(code, "making it executable")
        finally:
            _driver().cuGraphDestroy(graph)

    def launch(self, stream: int | None = None) -> None:
        """Queue it on the stream with that handle (None: the default one), behind everything that was queued there."""
        _check(_driver().cuGraphLaunch(self._executable, ctypes.c_void_p(stream)), "the launch")

    def __del__(self) -> None:
        if self._executable:
            _driver().cuGraphExecDestroy(self._executable)
