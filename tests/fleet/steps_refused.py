"""Steps of a fleet's life: who may not join it, and what it does not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.cluster.runner import PortableBuilder
from tests.fleet.cluster import ROOT, Cluster
from tests.fleet.fleet_case import FAKE, Script, runner


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
