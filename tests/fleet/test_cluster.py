"""A whole fleet on this machine: a tracker, two machines with faked devices, two with simulated VTA machines.

A fleet takes seconds to start, and in the end it is taken apart: what is tested are steps of one test, in the order of
`STEPS`.
"""

from __future__ import annotations

import time
from importlib.util import find_spec
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from tests.ansor.conftest import matmul_task, states
from tests.fleet.cluster import Cluster
from tests.fleet.fleet_case import Script, cluster, place, script
from tests.fleet.steps_at_rest import (
    a_network_runs_in_a_session,
    a_search_uses_every_device,
    the_query_tool_prints_the_tables_of_the_tutorial,
    the_task_scheduler_runs_on_it,
    vta_templates_give_what_the_simulator_here_gives,
)
from tests.fleet.steps_lost import (
    a_machine_that_joins_in_the_middle_takes_part,
    ctrl_c_gives_the_devices_back,
    hangs_and_crashes_cost_their_candidate_only,
    inject,
    killed_workers_machines_and_tools_cost_no_record,
    without_its_tracker_a_driver_gets_one_sentence_and_nothing_is_left,
)
from tests.fleet.steps_refused import (
    a_task_for_another_target_is_refused,
    devices_of_another_model_are_refused,
    other_releases_are_refused,
)
from vta_sim.top import templates

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="the fleet needs ray, which takes long to load")
__all__ = ["cluster", "matmul_task", "place", "script", "states", "templates"]

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
