"""A whole fleet on this machine: a tracker, two machines with faked devices, two with simulated VTA machines.

Most devices are those of `tests/ansor/fake_devices.py`, whose programs misbehave as a script says, in the order in
which they are built.  A fleet takes seconds to start, and in the end it is taken apart: what is tested are steps of one
test, in the order of `STEPS`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.autotvm import LocalBuilder, LocalRunner, Task, create, measure_option
from ansor.autotvm.tuner import RandomTuner
from ansor.cluster.runner import PortableBuilder
from ansor.measure import MeasureErrorNo as E
from tests.ansor.conftest import matmul_task, states
from tests.fleet.cluster import HEED_CTRL_C, ROOT, Cluster, Program, wait_until_none
from tests.vta_sim.networks import images, quantized
from vta_sim.graph import graph_pack
from vta_sim.network.library import build
from vta_sim.top import templates
from vta_sim.tvm_names import autotvm, graph_runtime, relay, vta

pytest.importorskip("ray")
__all__ = ["matmul_task", "states", "templates"]
FAKE = ("--backend", "c=tests.ansor.fake_devices")
TIMEOUT = 10.0
Outcome = tuple[int, tuple[float, ...], int, str]
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


def conv_task() -> Task:
    data, kernel = te.placeholder((1, 2, 6, 6, 1, 16), dtype="int8"), te.placeholder((2, 2, 3, 3, 16, 16), dtype="int8")
    args = (data, kernel, (1, 1), (1, 1), (1, 1), "NCHW1n16c", "int32")
    return create("conv2d_packed.vta", args=args, target="vta")


# ------------------------------------------------------------------------------------------------- the fleet at rest


TABLES = """\
Tracker address 127.0.0.1:PORTS

Server List
------------------------------
server-address           key
------------------------------
      127.0.0.1:PORTS    fake
      127.0.0.1:PORTS    fake
      127.0.0.1:PORTS    vta
      127.0.0.1:PORTS    vta
------------------------------

Queue Status
----------------------------------
key          total  free  pending
----------------------------------
fake         4      4     0
vta          2      2     0
----------------------------------
"""


def the_query_tool_prints_the_tables_of_the_tutorial(cluster: Cluster) -> None:
    assert re.sub(r":\d{5}\b", ":PORTS", cluster.query()) == TABLES


def a_search_uses_every_device(cluster: Cluster, script: Script, matmul_task: Any, tmp_path: Path) -> None:
    """The seed decides the candidates, so the fleet measures what one device would."""
    script(["good"])
    log, fleet = tmp_path / "fleet.json", runner(cluster)
    options = {"num_measures_per_round": 8, "verbose": 0}
    policy = ansor.SketchPolicy(matmul_task, ansor.RandomModel(), seed=3, verbose=0)
    matmul_task.tune(
        ansor.TuningOptions(24, runner=fleet, measure_callbacks=[ansor.RecordToFile(str(log))], **options), policy
    )
    uses = fleet.usage()
    fleet.close()
    records = list(ansor.RecordReader(str(log)))
    assert len(records) == 24 == sum(use.trials for use in uses) and all(res.ok for _, res in records)
    assert len(uses) == 4 and all(re.fullmatch(r"127\.0\.0\.1:\d+ c [01] \(fast\)", use.device) for use in uses)
    best, _ = ansor.load_best_record(str(log), matmul_task.workload_key)
    assert best is not None


def the_task_scheduler_runs_on_it(cluster: Cluster, script: Script, tmp_path: Path) -> None:
    script(["good"])
    hardware = ansor.HardwareParams(num_cores=2)
    tasks = [ansor.SearchTask("matmul", (13, n, 7), target="c", hardware_params=hardware) for n in (11, 17)]
    log, fleet = tmp_path / "log.json", runner(cluster, priority=2, n_parallel=2)
    scheduler = ansor.TaskScheduler(tasks, callbacks=[])
    scheduler.tune(
        ansor.TuningOptions(
            16, num_measures_per_round=4, verbose=0, runner=fleet, measure_callbacks=[ansor.RecordToFile(str(log))]
        ),
        search_policy="sketch.random",
    )
    fleet.close()
    keys = [inp.task.workload_key for inp, _ in ansor.RecordReader(str(log))]
    assert len(keys) == 16 and set(keys) == {t.workload_key for t in tasks}


def vta_templates_give_what_the_simulator_here_gives(cluster: Cluster) -> None:
    found = []
    for chosen in (runner(cluster, "vta"), LocalRunner()):
        results: list[Outcome] = []
        tuner = RandomTuner(conv_task(), rng=np.random.default_rng(1))
        keep = partial(note, results)
        tuner.tune(48, measure_option(LocalBuilder(), chosen), callbacks=[keep])
        found.append(results)
    assert found[0] == found[1] and len({error_no for _, _, error_no, _ in found[0]}) == 2


def note(results: list[Outcome], _: Any, inputs: Any, outcomes: Any) -> None:
    for inp, res in zip(inputs, outcomes, strict=True):
        results.append((inp.config.index, res.costs, res.error_no, res.error_msg))


def a_network_runs_in_a_session(cluster: Cluster, tmp_path: Path) -> None:
    """What the tutorial does at its end: the device gives what the simulator here gives."""
    lib = build(packed_network())
    lib.export_library(tmp_path / "graphlib.tar")
    image = images(1, seed=3)[0]
    here = lib.on()
    here.run(data=image)
    remote = autotvm.measure.request_remote("vta", "127.0.0.1", cluster.port)
    vta.program_fpga(remote, bitstream=None)
    assert queue(cluster)["vta"] == [2, 1, 0]
    remote.upload(str(tmp_path / "graphlib.tar"))
    assert remote.listdir() == ["graphlib.tar"] and remote.download("graphlib.tar")[:9] == b"graph.json"[:9]
    there = graph_runtime.GraphModule(remote.load_module("graphlib.tar")["default"](remote.ext_dev(0)))
    there.set_input("data", image)
    there.run()
    np.testing.assert_array_equal(there.get_output(0).numpy(), here.get_output(0).numpy())
    assert len(there.module.time_evaluator("run", number=1, repeat=3)().results) == 3
    with pytest.raises(
        ansor.MeasureError, match=r"network: it does not run: GraphError: VtaModule: the inputs are data"
    ):
        there.run(other=image)
    for wrong, text in (("../x", "a file name without folders is needed"), ("none.tar", "there is no such file")):
        with pytest.raises(ansor.MeasureError, match=text):
            remote.download(wrong)
    remote.remove("graphlib.tar")
    remote.close()
    with pytest.raises(ansor.MeasureError, match=r"^session: it is closed$"):
        remote.listdir()
    assert queue(cluster)["vta"] == [2, 2, 0]


def packed_network() -> relay.Function:
    return graph_pack(quantized(), 1, 16, 8, device_annot=True)


def other_releases_are_refused(cluster: Cluster) -> None:
    """Python's patch number may differ; anything else is refused in one sentence."""
    major, minor, patch = sys.version_info[:3]
    for engine, python in (("same", (minor, patch + 1)), ("same", (minor + 1, 0)), ("2.0.0", (minor, patch))):
        release = f"{major}.{python[0]}.{python[1]}"
        code = (
            "import sys, ray, ray._private.utils as u; from ansor.exec import query_rpc_tracker as q;"
            f" u.compute_version_info = lambda: ({engine!r}.replace('same', ray.__version__), {release!r});"
            f" sys.exit(q.main(['--port={cluster.port}']))"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
        if (engine, python[0]) == ("same", minor):
            assert done.returncode == 0 and "Queue Status" in done.stdout, done.stderr
        else:
            (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("fleet")]
            assert done.returncode == 2 and f"joining 127.0.0.1:{cluster.port}: Version mismatch: " in sentence
            assert release in sentence and (engine == "same" or engine in sentence)


def devices_of_another_model_are_refused(cluster: Cluster, place: Path) -> None:
    env = {"FAULTS": str(place), "MODELS": "slow"}
    refused = cluster.begin_server("fake", "c", env, *FAKE)
    refused.wait_for("\n")
    assert refused.process.wait(60) == 4
    assert refused.printed == (
        "server: the tracker refuses it: key 'fake': all devices under one key must be of one model,"
        " or their costs do not compare, got there='fast' new='slow'\n"
    )


def a_task_for_another_target_is_refused(cluster: Cluster, script: Script, matmul_task: Any, states: Any) -> None:
    script(["good"])
    builder = PortableBuilder(n_parallel=1)
    fleet = runner(cluster, "vta")
    inp = ansor.MeasureInput(matmul_task, states(1)[0])
    with pytest.raises(ansor.MeasureError, match=r"runs programs of target 'vta', got task='c'$"):
        fleet.run(inp, builder.submit(inp).result())
    fleet.close()
    builder.close()


# ------------------------------------------------------------------------------------------------------------ faults

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
    workers = [line for line in cluster.left() if "ansor.measure.worker" in line]
    assert len(workers) <= 6 + 1, "one a device, and that of a session"


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


def lines(file: Path) -> list[str]:
    return file.read_text().splitlines() if file.exists() else []


def wait_for(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.02)


# ------------------------------------------------------------------------------------------------ machines come and go


def killed_workers_machines_and_tools_cost_no_record(
    cluster: Cluster, script: Script, matmul_task: Any, states: Any, tmp_path: Path
) -> None:
    place, log = script(["slow"]), tmp_path / "log.json"
    killed: list[float] = []

    def kill() -> None:
        wait_for(lambda: len(lines(place / "ran")) >= 8)
        worker = int(lines(place / "ran")[-1].split()[1])
        os.kill(worker, signal.SIGKILL)
        tool = Program("query_rpc_tracker", f"--port={cluster.port}", mark=cluster.mark)
        cluster.servers[1].stop(signal.SIGKILL)
        tool.stop(signal.SIGKILL)
        killed.append(time.monotonic())

    killer = threading.Thread(target=kill)
    killer.start()
    results = measure(cluster, matmul_task, states(40), log)
    assert time.monotonic() - killed[0] < TIMEOUT + 5.0 + 40 * 0.3
    killer.join()
    assert [r.error_no for r in results] == [0] * 40
    assert len(list(ansor.RecordReader(str(log)))) == 40
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


# -------------------------------------------------------------------------------------------------------- the end


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


STEPS = (
    the_query_tool_prints_the_tables_of_the_tutorial,
    a_network_runs_in_a_session,
    vta_templates_give_what_the_simulator_here_gives,
    other_releases_are_refused,
    devices_of_another_model_are_refused,
    a_task_for_another_target_is_refused,
    a_search_uses_every_device,
    the_task_scheduler_runs_on_it,
    hangs_and_crashes_cost_their_candidate_only,
    ctrl_c_gives_the_devices_back,
    killed_workers_machines_and_tools_cost_no_record,
    a_machine_that_joins_in_the_middle_takes_part,
    without_its_tracker_a_driver_gets_one_sentence_and_nothing_is_left,
)


@pytest.mark.long
def test_the_life_of_a_fleet(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    for step in STEPS:
        folder = tmp_path / step.__name__
        folder.mkdir()
        given = {name: request.getfixturevalue(name) for name in signature(step).parameters if name != "tmp_path"}
        begin = time.monotonic()
        step(**given, **({"tmp_path": folder} if "tmp_path" in signature(step).parameters else {}))
        print(f"{step.__name__}: {time.monotonic() - begin:.1f} s")


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_500_hangs_and_crashes(cluster: Cluster, script: Script, states: Any, tmp_path: Path) -> None:
    inject(500, cluster, script, states, tmp_path / "log.json", 1.0)
