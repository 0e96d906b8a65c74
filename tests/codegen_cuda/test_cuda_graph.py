"""Recording launches: which of the driver's functions are called, in which order, and what a refusal says."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

from codegen_cuda.networks import cuda_graph
from codegen_cuda.networks.cuda_graph import Fork, LaunchGraph, RecordedKernel
from codegen_cuda.program.errors import DeviceError


class Stream:
    handle = 0x5EED

    def __init__(self, flags: int) -> None:
        assert flags == cuda_graph.NON_BLOCKING


class FakeDriver:
    """Notes calls; `fails` gives an error."""

    recorded = 1

    def __init__(self, fails: str = "") -> None:
        self.calls: list[str] = []
        self.set: list[int] = []
        self.fails = fails

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any) -> int:
            if name == "cuGetErrorName":
                ctypes.cast(args[1], ctypes.POINTER(ctypes.c_char_p))[0] = b"CUDA_ERROR_X"
                return 0
            self.calls.append(name.removeprefix("cu"))
            if name != self.fails:
                self.answer(name, args)
            return int(name == self.fails)

        return call

    def answer(self, name: str, args: Any) -> None:
        if name == "cuGraphInstantiateWithFlags":
            ctypes.cast(args[0], ctypes.POINTER(ctypes.c_void_p))[0] = 77
        if name == "cuStreamEndCapture":
            ctypes.cast(args[1], ctypes.POINTER(ctypes.c_void_p))[0] = 66
        if name == "cuStreamGetCaptureInfo_v2":
            self.nodes = (ctypes.c_void_p * 1)(1000 + len(self.calls))
            ctypes.cast(args[4], ctypes.POINTER(ctypes.c_void_p))[0] = ctypes.addressof(self.nodes)
            ctypes.cast(args[5], ctypes.POINTER(ctypes.c_size_t))[0] = self.recorded
        if name == "cuGraphExecKernelNodeSetParams_v2":
            params = args[2]._obj
            places = (ctypes.c_void_p * 3).from_address(params.values)
            self.set = [args[0].value, args[1].value, *[ctypes.c_uint64.from_address(p).value for p in places]]


class FakeCuda:
    Stream = Stream


def record(driver: FakeDriver, stream: Stream) -> None:
    assert stream.handle == 0x5EED
    driver.calls.append("record")


RECORDED = ["StreamBeginCapture_v2", "record", "StreamEndCapture", "GraphInstantiateWithFlags"]


def test_the_order_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setattr(cuda_graph, "_driver", lambda: driver)
    made = LaunchGraph(FakeCuda(), lambda stream: record(driver, stream))
    assert driver.calls == RECORDED
    made.launch()
    made.launch()
    del made
    assert driver.calls[4:] == ["GraphLaunch", "GraphLaunch", "GraphExecDestroy", "GraphDestroy"]


@pytest.mark.parametrize(
    "fails, what, calls",
    [
        ("cuStreamBeginCapture_v2", "the beginning of the recording", 1),
        ("cuStreamEndCapture", "the end of the recording", 3),
        ("cuGraphInstantiateWithFlags", "making it executable", 5),
    ],
)
def test_refusals(monkeypatch: pytest.MonkeyPatch, fails: str, what: str, calls: int) -> None:
    driver = FakeDriver(fails)
    monkeypatch.setattr(cuda_graph, "_driver", lambda: driver)
    with pytest.raises(DeviceError, match=f"CUDA graph: {what} failed, CUDA_ERROR_X"):
        LaunchGraph(FakeCuda(), lambda stream: record(driver, stream))
    assert driver.calls == [*RECORDED, "GraphDestroy"][:calls]


def test_arguments_are_exchanged_kernel_by_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setattr(cuda_graph, "_driver", lambda: driver)
    nodes: list[int] = []

    def two(stream: Stream) -> list[RecordedKernel]:
        made = []
        for _ in range(2):
            made.append(RecordedKernel(stream))
            nodes.append(driver.nodes[0])
        return made

    graph = LaunchGraph(FakeCuda(), two)
    graph.exchange(1, [7, 1 << 40, 9])
    assert driver.set == [77, nodes[1], 7, 1 << 40, 9]
    graph.exchange(0, [10, 11, 12])
    assert driver.set == [77, nodes[0], 10, 11, 12] and nodes[0] != nodes[1]
    driver.recorded = 0
    with pytest.raises(DeviceError, match="a kernel must be recorded, got nodes=0"):
        LaunchGraph(FakeCuda(), two)


def test_a_recording_that_fails_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setattr(cuda_graph, "_driver", lambda: driver)

    def fail(stream: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        LaunchGraph(FakeCuda(), fail)
    assert driver.calls == ["StreamBeginCapture_v2", "StreamEndCapture", "GraphDestroy"]


class Track:
    """A stream, an event or the device: what is queued is noted in `log` as (stream, what)."""

    def __init__(self, log: list[tuple[int, str]]) -> None:
        self.log = log
        self.streams = self.events = 0

    def Stream(self, flags: int) -> Any:
        assert flags == cuda_graph.NON_BLOCKING
        self.streams += 1
        return TrackedStream(self, self.streams)

    class event_flags:
        DISABLE_TIMING = 2

    def Event(self, flags: int) -> Any:
        self.events += 1
        return TrackedEvent(self, self.events)


class TrackedStream:
    def __init__(self, track: Track, number: int) -> None:
        self.track, self.number = track, number

    def wait_for_event(self, event: Any) -> None:
        self.track.log.append((self.number, f"wait {event.number}"))


class TrackedEvent:
    def __init__(self, track: Track, number: int) -> None:
        self.track, self.number = track, number

    def record(self, stream: TrackedStream) -> None:
        self.track.log.append((stream.number, f"event {self.number}"))


def test_streams_fork_and_join() -> None:
    log: list[tuple[int, str]] = []
    track = Track(log)

    fork = Fork(track, TrackedStream(track, 0))
    for k, (stream, waits) in enumerate([(0, ()), (1, (0,)), (0, ()), (0, (1,))]):
        with fork.step(stream, waits) as queue:
            log.append((queue.number, f"step {k}"))
    fork.join()
    assert log == [
        (0, "event 1"),
        *[(0, "step 0"), (0, "event 2")],
        *[(1, "wait 1"), (1, "wait 2"), (1, "step 1"), (1, "event 3")],
        *[(0, "step 2"), (0, "event 4")],
        *[(0, "wait 3"), (0, "step 3"), (0, "event 5")],
        (0, "wait 3"),
    ]


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda_graph._driver.cache_clear()

    def missing(name: str) -> Any:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(DeviceError, match=r"the driver's library libcuda.so.1 cannot be loaded"):
        LaunchGraph(FakeCuda(), lambda stream: None)
