"""Steps of a fleet's life: programs that hang, workers, machines and drivers that die, machines that join, the end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.cluster.runner import PortableBuilder
from ansor.measure import MeasureErrorNo as E
from tests.fleet.cluster import HEED_CTRL_C, ROOT, Cluster, Program, wait_until_none
from tests.fleet.fleet_case import FAKE, TIMEOUT, Script, lines, measure, queue, runner, wait_for

HANGS_AND_CRASHES = {
    "run_segv": E.RUNTIME_DEVICE, "run_hang": E.RUN_TIMEOUT, "run_stop": E.RUN_TIMEOUT, "run_exit": E.RUNTIME_DEVICE,
    "run_kill_once": E.NO_ERROR, "run_hang_once": E.NO_ERROR,
}  # fmt: skip
OTHERS = {
    "good": E.NO_ERROR, "wrong": E.WRONG_ANSWER, "build_raise": E.COMPILE_HOST, "run_raise": E.RUNTIME_DEVICE,
}  # fmt: skip


def inject(faults: int, cluster: Cluster, script: Script, states: Any, log: Path, timeout: float) -> None:
    """Every fault costs its candidate only, nothing is lost, nothing is left."""
    planted = {**HANGS_AND_CRASHES, **OTHERS}
    words = list(planted) * -(-faults // len(HANGS_AND_CRASHES))
    script(words)
    task = ansor.SearchTask("matmul", (30, 42, 36), target="c")
    results = measure(cluster, task, states(len(words), task), log, timeout=timeout)
    assert [(w, r.error_no) for w, r in zip(words, results, strict=True)] == [(w, int(planted[w])) for w in words]
    assert len(list(ansor.RecordReader(str(log)))) == len(words)
    names = [line.split()[1] for line in cluster.left()]
    for name in ("ansor-worker", "ansor-guard"):
        assert 0 < names.count(name) <= 6 + 1, "one a device, and that of a session"


def hangs_and_crashes_cost_their_candidate_only(cluster: Cluster, script: Script, states: Any, tmp_path: Path) -> None:
    inject(12, cluster, script, states, tmp_path / "log.json", 2.0)


DRIVER = textwrap.dedent("""\
    import sys
    import ansor
    import tests.ansor.conftest

    if __name__ == "__main__":
        ansor.register_backend("c", "tests.ansor.fake_devices")
        task = ansor.SearchTask("matmul", (13, 11, 7), target="c")
        runner = ansor.RPCRunner("fake", "127.0.0.1", int(sys.argv[1]), timeout=100)
        task.tune(ansor.TuningOptions(16, runner=runner, verbose=0))
""")


def ctrl_c_gives_the_devices_back(cluster: Cluster, script: Script) -> None:
    """Four programs that hang are under way; the driver ends at once, and so do they."""
    place, mark = script(["run_hang"]), uuid.uuid4().hex
    env = {**os.environ, "PYTHONPATH": str(ROOT), "FLEET_TEST": mark}
    driver = subprocess.Popen(
        [sys.executable, "-c", HEED_CTRL_C + DRIVER, str(cluster.port)], env=env, cwd=ROOT, stderr=subprocess.PIPE
    )
    wait_for(lambda: len(lines(place / "begun")) == 4)
    assert queue(cluster)["fake"][:2] == [4, 0]
    driver.send_signal(signal.SIGINT)
    _, said = driver.communicate(timeout=60)
    assert driver.returncode != 0 and b"KeyboardInterrupt" in said
    assert wait_until_none(mark, 10.0) == []
    assert queue(cluster)["fake"] == [4, 4, 0]
    assert len(lines(place / "begun")) == 4, "nothing was tried again"


def killed_workers_machines_and_tools_cost_no_record(
    cluster: Cluster, script: Script, matmul_task: Any, states: Any, tmp_path: Path
) -> None:
    place, log, count = script(["slow"]), tmp_path / "log.json", 80
    killed: list[float] = []

    def kill() -> None:
        """Once each of the four devices has a record: a busy host starts their workers seconds apart."""
        wait_for(lambda: len({json.loads(line)["d"] for line in lines(log) if line.startswith("{")}) == 4)
        worker = int(lines(place / "ran")[-1].split()[1])
        os.kill(worker, signal.SIGKILL)
        tool = Program("query_rpc_tracker", f"--port={cluster.port}", mark=cluster.mark)
        cluster.servers[1].stop(signal.SIGKILL)
        tool.stop(signal.SIGKILL)
        killed.append(time.monotonic())

    killer = threading.Thread(target=kill)
    killer.start()
    results = measure(cluster, matmul_task, states(count), log)
    assert time.monotonic() - killed[0] < TIMEOUT + 5.0 + count * 0.3
    killer.join()
    assert [r.error_no for r in results] == [0] * count
    assert len(list(ansor.RecordReader(str(log)))) == count
    devices = {r.device for r in results}
    assert len(devices) == 4, "both machines took part"
    wait_for(lambda: queue(cluster)["fake"] == [2, 2, 0])


def a_machine_that_joins_in_the_middle_takes_part(
    cluster: Cluster, script: Script, matmul_task: Any, states: Any, tmp_path: Path
) -> None:
    place = script(["slow"])

    def join() -> None:
        wait_for(lambda: len(lines(place / "ran")) >= 2)
        cluster.begin_server("fake", "c", {"FAULTS": str(place), "MODELS": "fast,fast"}, *FAKE)

    joiner = threading.Thread(target=join)
    joiner.start()
    fleet = runner(cluster)
    builder = PortableBuilder(n_parallel=1)
    measurer = ansor.ProgramMeasurer(builder, fleet, verbose=0)
    count, programs = 0, states(200)
    while len(fleet.usage()) < 4:
        batch = [ansor.MeasureInput(matmul_task, s) for s in programs[count : count + 20]]
        assert batch, "nobody joined"
        assert all(r.ok for r in measurer.measure(matmul_task, None, batch))
        count += 20
    measurer.close()
    joiner.join()


def without_its_tracker_a_driver_gets_one_sentence_and_nothing_is_left(
    cluster: Cluster, script: Script, matmul_task: Any, states: Any
) -> None:
    """Ctrl-C ends one server and the tracker; the others notice."""
    script(["good"])
    assert cluster.servers[0].stop() == 0
    fleet, builder = runner(cluster), PortableBuilder(n_parallel=1)
    inp = ansor.MeasureInput(matmul_task, states(1)[0])
    built = builder.submit(inp).result()
    assert cluster.tracker.stop() == 0
    with pytest.raises(ansor.MeasureError, match=rf"^fleet: the tracker at 127\.0\.0\.1:{cluster.port} is gone$"):
        fleet.run(inp, built)
    fleet.close()
    builder.close()
    assert [server.process.wait(60) for server in cluster.servers[2:4]] == [2, 2]
    assert wait_until_none(cluster.mark, 20.0) == []
