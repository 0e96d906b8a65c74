"""Steps of a fleet's life: what it is for, from its tables to searches, templates and networks."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.autotvm import LocalBuilder, LocalRunner, Task, create, measure_option
from ansor.autotvm.tuner import RandomTuner
from tests.fleet.cluster import Cluster
from tests.fleet.fleet_case import Script, queue, runner
from tests.vta_sim.networks import images, quantized
from vta_sim.graph import graph_pack
from vta_sim.network.library import build
from vta_sim.tvm_names import autotvm, graph_runtime, relay, vta

Outcome = tuple[int, tuple[float, ...], int, str]
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
    """The seed decides the candidates, so the fleet measures what one device would; the baselines are no trials."""
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
    assert len(records) == 24 == sum(use.trials for use in uses) - 2 and all(res.ok for _, res in records)
    assert len(uses) == 4 and all(re.fullmatch(r"127\.0\.0\.1:\d+ c [01] \(fast\)", use.device) for use in uses)
    best, _ = ansor.load_best_record(str(log), matmul_task.workload_key)
    assert best is not None


def the_task_scheduler_runs_on_it(cluster: Cluster, script: Script, tmp_path: Path) -> None:
    script(["good"])
    hardware = ansor.HardwareParams(num_cores=2, vector_unit_bytes=32)
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


def conv_task() -> Task:
    data, kernel = te.placeholder((1, 2, 6, 6, 1, 16), dtype="int8"), te.placeholder((2, 2, 3, 3, 16, 16), dtype="int8")
    args = (data, kernel, (1, 1), (1, 1), (1, 1), "NCHW1n16c", "int32")
    return create("conv2d_packed.vta", args=args, target="vta")


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
