"""Launches recorded once and replayed as one: CUDA graphs, through the driver's own functions.

PyCUDA has no graphs, so the few functions that are needed are called through ctypes; streams, modules and memory stay
PyCUDA's.  A replay costs one call, and kernels inside follow each other within about a microsecond.  What a recorded
kernel is called with can be exchanged, for all launches to come.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from te_lite.errors import require

from ..driver.tensor_maps import kernel_params
from ..overlap.dependent_launch import begin_early
from ..program.errors import DeviceError

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
    newest = "cuGraphExecKernelNodeSetParams_v2"
    require(hasattr(library, newest), DeviceError, "CUDA graph", "CUDA 12.0 or later is needed", missing=newest)
    return library


def _check(code: int, what: str) -> None:
    if code:
        name = ctypes.c_char_p()
        _driver().cuGetErrorName(code, ctypes.byref(name))
        raise DeviceError(f"CUDA graph: {what} failed, {(name.value or b'an unknown error').decode()}")


class Fork:
    """Several streams that are recorded together with the stream `first`, which waits for all of them at `join`."""

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


class _KernelParams(ctypes.Structure):
    """`CUDA_KERNEL_NODE_PARAMS`, its second version."""

    _fields_ = [("function", ctypes.c_void_p), ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared_bytes", ctypes.c_uint), ("values", ctypes.c_void_p), ("extra", ctypes.c_void_p),
                ("kernel", ctypes.c_void_p), ("context", ctypes.c_void_p)]  # fmt: skip


class RecordedKernel:
    """The kernel that was queued last on a stream that is recorded.

    `waits`: for the end of those before it by itself (`dependent_launch.py`); `node` is its place in the graph.
    """

    def __init__(self, stream: Any, waits: bool = False) -> None:
        self.waits = waits
        handle, status, number = ctypes.c_void_p(int(stream.handle)), ctypes.c_int(), ctypes.c_ulonglong()
        graph, nodes, count = ctypes.c_void_p(), ctypes.POINTER(ctypes.c_void_p)(), ctypes.c_size_t()
        asked = [ctypes.byref(x) for x in (status, number, graph, nodes, count)]
        _check(_driver().cuStreamGetCaptureInfo_v2(handle, *asked), "reading what was recorded")
        require(count.value == 1, DeviceError, "CUDA graph", "a kernel must be recorded", nodes=count.value)
        self.node: int | None = nodes[0]
        self._params = _KernelParams()
        code = _driver().cuGraphKernelNodeGetParams_v2(ctypes.c_void_p(self.node), ctypes.byref(self._params))
        _check(code, "reading a recorded kernel")

    def exchange(self, executable: ctypes.c_void_p, values: Sequence[int | bytes]) -> None:
        """Call it with `values` (see `kernel_params`) in the launches of a graph that are queued from now on."""
        room = kernel_params(*values)
        self._params.values, self._params.extra = ctypes.addressof(room), None
        node, params = ctypes.c_void_p(self.node), ctypes.byref(self._params)
        code = _driver().cuGraphExecKernelNodeSetParams_v2(executable, node, params)
        _check(code, "exchanging the arguments of a kernel")


def wait(stream: int | None) -> None:
    """Wait for all that is queued on the stream with that handle (None: the default one)."""
    _check(_driver().cuStreamSynchronize(ctypes.c_void_p(stream)), "what was queued")


class LaunchGraph:
    """What `record(stream)` queues on a stream, to be queued again with one call.

    Kernels and asynchronous copies can be recorded; memory addresses are those of the recording, but for the kernels
    that `record` gives back, in the order in which `exchange` counts them.  With `early` those of them that wait for
    themselves are launched ahead (`dependent_launch.py`).  Raises DeviceError when the driver refuses.
    """

    def __init__(
        self, cuda: Any, record: Callable[[Any], Sequence[RecordedKernel] | None], early: bool = False
    ) -> None:  # fmt: skip
        self._executable, self._graph = ctypes.c_void_p(), ctypes.c_void_p()
        stream = cuda.Stream(NON_BLOCKING)
        handle = ctypes.c_void_p(int(stream.handle))
        _check(_driver().cuStreamBeginCapture_v2(handle, RELAXED), "the beginning of the recording")
        try:
            self.kernels = record(stream) or ()
        finally:
            code = _driver().cuStreamEndCapture(handle, ctypes.byref(self._graph))
        _check(code, "the end of the recording")
        if early:
            begin_early(_driver(), self._graph, _check, {k.node for k in self.kernels if k.waits})
        flags = ctypes.c_ulonglong(0)
        code = _driver().cuGraphInstantiateWithFlags(ctypes.byref(self._executable), self._graph, flags)
        _check(code, "making it executable")

    def exchange(self, kernel: int, values: Sequence[int | bytes]) -> None:
        """Call a recorded kernel with other values from now on; launches that are queued are as they were."""
        self.kernels[kernel].exchange(self._executable, values)

    def launch(self, stream: int | None = None) -> None:
        """Queue it on the stream with that handle (None: the default one), behind everything that was queued there."""
        _check(_driver().cuGraphLaunch(self._executable, ctypes.c_void_p(stream)), "the launch")

    def __del__(self) -> None:
        if self._executable:
            _driver().cuGraphExecDestroy(self._executable)
        if self._graph:  # the nodes of a graph name its kernels as long as it lives
            _driver().cuGraphDestroy(self._graph)
