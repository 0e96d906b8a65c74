"""The search tasks of a network: the front end for graphs does the work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..target.hardware import HardwareParams
from ..target.registry import front_end
from ..target.target import Target
from .task import SearchTask


def extract_tasks(
    graph: Any,
    params: Mapping[str, Any] | None,
    target: Target | str,
    hardware_params: HardwareParams | None = None,
    include_simple_tasks: bool = False,
    dump_workload_to_dag_log: str | os.PathLike[str] | None = None,
    opt_level: int = 3,
) -> tuple[list[SearchTask], list[int]]:
    """The search tasks of a network and how often it runs each: `extract_tasks` of `relay_lite.compiler.optimize`.

    Raises BackendError when the package relay_lite is missing.
    """
    tasks: tuple[list[SearchTask], list[int]] = front_end(
        "relay_lite.compiler.optimize", "extract_tasks"
    ).extract_tasks(graph, params, target, hardware_params, include_simple_tasks, dump_workload_to_dag_log, opt_level)
    return tasks
