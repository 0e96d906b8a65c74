"""`autotvm`: templates and tuners, and runners by the name of a board."""

from __future__ import annotations

from ansor.errors import BackendError
from ansor.template import (
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
from te_lite.errors import require

from . import measure, task

SIMULATORS = ("sim", "tsim")


def RPCRunner(
    key: str,
    host: str = "0.0.0.0",
    port: int = 9190,
    timeout: float = 10,
    number: int = 4,
    repeat: int = 3,
    check_correctness: bool = True,
) -> LocalRunner:
    """The runner for boards that a tracker knows as `key`.  The simulator is in this process, without a tracker.

    Raises BackendError for a board.
    """
    law = f"there are no boards here, the runners are {', '.join(SIMULATORS)}"
    require(key in SIMULATORS, BackendError, "RPCRunner", law, got=key)
    return LocalRunner(timeout=timeout, number=number, repeat=repeat, check_correctness=check_correctness)


__all__ = [
    "ConfigEntity", "LocalBuilder", "LocalRunner", "RPCRunner", "apply_history_best", "callback", "get_config",
    "measure", "measure_option", "record", "task", "template", "tophub", "tuner",
]  # fmt: skip
