"""Templates measured on a fleet: their programs are made here, and run wherever a device is free.

Programs of targets `c` and `cuda` are built as those of a search are.  A backend with templates of its own says what
it sends instead (`ansor.core.device.backend.SendsPrograms`).
"""

from __future__ import annotations

from dataclasses import dataclass

from te_lite.errors import require

from ..cluster.runner import PortableBuilder, RPCRunner
from ..core.device.backend import SendsPrograms, TemplateBackend
from ..core.device.backend import backend as backend_of
from .compiled import CompiledMeasurer, CompiledPrograms
from .errors import TemplateError
from .measure import Measurer
from .task import Task

AT_A_TIME = 4
LEAST = 16


@dataclass(frozen=True)
class FleetMeasure:
    """Building with `timeout` seconds in `n_parallel` processes, measuring on a fleet: what `measure_option` makes."""

    timeout: float
    n_parallel: int
    backend: TemplateBackend | None
    runner: RPCRunner

    def open(self, task: Task) -> Measurer:
        """A measurer of a task.  Raises TemplateError for a backend whose programs cannot be sent."""
        batch = max(LEAST, AT_A_TIME * self.runner.devices())
        backend = self.backend or backend_of(task.target.kind.name).templates
        if backend is None:
            builder = PortableBuilder(self.timeout, self.n_parallel)
            return CompiledMeasurer(task, CompiledPrograms(), builder, self.runner, batch)
        law = "its programs cannot be sent to other machines, it has no method program_builder"
        require(isinstance(backend, SendsPrograms), TemplateError, type(backend).__name__, law)
        assert isinstance(backend, SendsPrograms)
        return CompiledMeasurer(task, backend.program, backend.program_builder(), self.runner, batch)
