"""The plain loop nest of a computation, run once: slow, not searched for, and proven to keep within its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from te_lite import ComputeDAG
from te_lite.lowering.lower import lower

from ..core.device.backend import Backend, Device
from ..core.files.private_files import scratch_folder
from ..core.tasks.task import SearchTask
from ..sketch.plain import plain_state


def run_plain(dag: ComputeDAG, backend: Backend, target: str, device: Device, handles: Sequence[Any]) -> None:
    """Run it on arrays of the device, and wait for the end.

    Raises UnsafeError when it is not proven, and the backend's errors.
    """
    func = lower(plain_state(SearchTask(compute_dag=dag, target=target)), dag.tensors)
    with scratch_folder("reference") as folder:
        backend.build(func, target, folder)
        device.load(folder).run(handles)
