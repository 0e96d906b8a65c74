"""`autotvm`: templates and tuners, and runners by the name of a key."""

from __future__ import annotations

from ansor import cluster as fleet
from ansor.autotvm import (
    ConfigEntity,
    LocalBuilder,
    LocalRunner,
    apply_history_best,
    callback,
    get_config,
    measure_option,
    record,
    template,
    tophub,
    tuner,
)

from . import measure, task

SIMULATORS = ("sim", "tsim")
NOWHERE = "0.0.0.0"


def RPCRunner(
    key: str,
    host: str = "0.0.0.0",
    port: int = 9190,
    timeout: float = 10,
    number: int = 4,
    repeat: int = 3,
    check_correctness: bool = True,
) -> LocalRunner | fleet.RPCRunner:
    """The runner for devices that the tracker at `host:port` knows as `key`.

    "0.0.0.0" is nobody's address: with it, the simulators `sim` and `tsim` are in this process, without a tracker.
    Raises BackendError when there is no tracker, or no device under the key.
    """
    if key in SIMULATORS and host == NOWHERE:
        return LocalRunner(timeout=timeout, number=number, repeat=repeat, check_correctness=check_correctness)
    return fleet.RPCRunner(
        key, host, port, timeout=timeout, number=number, repeat=repeat, check_correctness=check_correctness
    )


__all__ = [
    "ConfigEntity", "LocalBuilder", "LocalRunner", "RPCRunner", "apply_history_best", "callback", "get_config",
    "measure", "measure_option", "record", "task", "template", "tophub", "tuner",
]  # fmt: skip
