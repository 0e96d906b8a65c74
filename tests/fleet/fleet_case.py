"""What the steps of a fleet's life share: its programs, a script for its faked devices, and measuring on it.

Most devices are those of `tests/ansor/fake_devices.py`, whose programs misbehave as a script says, in the order in
which they are built.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.cluster.runner import PortableBuilder
from tests.fleet.cluster import Cluster, wait_until_none

FAKE = ("--backend", "c=tests.ansor.fake_devices")
TIMEOUT = 10.0
Script = Callable[[list[str]], Path]


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the fakes read what to do."""
    return tmp_path_factory.mktemp("fakes")


@pytest.fixture
def cluster(place: Path) -> Iterator[Cluster]:
    mark = uuid.uuid4().hex
    made = Cluster(mark)
    env = {"FAULTS": str(place), "MODELS": "fast,fast"}
    for _ in range(2):
        made.begin_server("fake", "c", env, *FAKE)
    for _ in range(2):
        made.begin_server("vta", "vta:0")
    for server in made.servers:
        server.wait_for("INFO:RPCServer:bind")
    yield made
    made.close()
    assert wait_until_none(mark, 20.0) == []


@pytest.fixture
def script(place: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Script]:
    """`script(words)` says what the next programs do; target c is served by the fakes meanwhile."""
    monkeypatch.setenv("FAULTS", str(place))
    monkeypatch.setenv("MODELS", "fast,fast")
    before = ansor.register_backend("c", "tests.ansor.fake_devices")

    def write(words: list[str]) -> Path:
        for file in place.iterdir():
            file.unlink()
        (place / "script").write_text("\n".join(words))
        return place

    yield write
    ansor.register_backend("c", before or "codegen_c.backend")


def runner(cluster: Cluster, key: str = "fake", **options: Any) -> ansor.RPCRunner:
    return ansor.RPCRunner(key, "127.0.0.1", cluster.port, **{"timeout": TIMEOUT, "min_repeat_ms": 0, **options})


def measure(
    cluster: Cluster, task: ansor.SearchTask, programs: list[Any], log: Path, **options: Any
) -> list[ansor.MeasureResult]:  # fmt: skip
    """Measure programs that one process builds, so that the k-th does what the k-th word says."""
    callbacks = [ansor.RecordToFile(str(log))]
    measurer = ansor.ProgramMeasurer(PortableBuilder(n_parallel=1), runner(cluster, **options), callbacks, verbose=0)
    try:
        return measurer.measure(task, None, [ansor.MeasureInput(task, s) for s in programs])
    finally:
        measurer.close()


def queue(cluster: Cluster) -> dict[str, list[int]]:
    """The numbers of the second table."""
    rows = cluster.query().split("Queue Status")[1].splitlines()
    return {row.split()[0]: [int(n) for n in row.split()[1:]] for row in rows[4:-1]}


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def wait_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)
