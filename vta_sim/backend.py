"""The backend of target `vta`: configurations of templates become programs, which run on a simulated machine.

The programs of a search over sketches are schedules, too, but no loops that are emitted and compiled as text: they are
measured by a runner of their own (`search.py`), and `Backend.source` and its like have nothing to give.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from ansor.autotvm.config import ConfigEntity
from ansor.autotvm.task import Task, Workload
from ansor.core.device.backend import Backend, Refusal, RunOptions
from ansor.core.device.backend import Device as MeasureDevice
from ansor.core.errors import BackendError
from ansor.core.target.hardware import HardwareParams
from ansor.core.tasks.measure_values import DeviceInfo, MeasureErrorNo, MeasureInput
from ansor.core.tasks.task import SearchTask
from te_lite import ComputeDAG
from te_lite.errors import TeError, require
from te_lite.loops.stmt import LoweredFunc

from .compiler import Program, compile_schedule
from .compiler.module import Array
from .core.config import TARGETS, Config, preset
from .measure.played import inputs_and_outputs, play, random_inputs
from .measure.simulated_device import ProgramWriter, SimulatedDevice
from .network.executor import VtaModule
from .network.library import load_library
from .sim import PYNQ, CycleModel
from .top import templates

NO_LIMITS = HardwareParams(0, 0, 0, 0, 0, 0, 0, 0)


class Trials:
    """Builds and runs configurations: the `TemplateBackend` of the machine.

    `model` says how long programs take.  Inputs and reference outputs are made once for each workload.
    """

    def __init__(self, config: Config | None = None, model: CycleModel = PYNQ) -> None:
        self.config = config or Config()
        self.model = model
        self._expected: dict[Workload, list[Array]] = {}
        self._search_tasks: dict[Workload, SearchTask] = {}

    def build(self, task: Task, config: ConfigEntity) -> Program | Refusal:
        """The program of a configuration, or the reason why there is none."""
        try:
            with templates.on_machine(self.config):
                schedule, tensors = task.instantiate(config)
            return compile_schedule(schedule, tensors, self.config)
        except TeError as error:
            return Refusal(MeasureErrorNo.INSTANTIATION_ERROR, str(error))

    def run(self, task: Task, program: Any, options: RunOptions) -> Sequence[float] | Refusal:
        """Seconds of one run on the modelled machine."""
        assert isinstance(program, Program)
        found = play(program, self._arrays(task), self.model, options.check_correctness)
        return found if isinstance(found, Refusal) else (found,)

    def program(self, task: Task, config: ConfigEntity) -> MeasureInput:
        """A configuration as a program that other machines can run.  Raises TeError when there is none."""
        with templates.on_machine(self.config):
            schedule, tensors = task.instantiate(config)
        if task.workload not in self._search_tasks:
            inputs = {t.name: array for t, array in random_inputs(tensors).items()}
            self._search_tasks[task.workload] = SearchTask(
                compute_dag=ComputeDAG(tensors), target=task.target, hardware_params=NO_LIMITS, task_inputs=inputs
            )
        return MeasureInput(self._search_tasks[task.workload], steps=schedule.state.steps)

    def program_builder(self) -> ProgramWriter:
        """The builder of such programs."""
        return ProgramWriter(self.config)

    def _arrays(self, task: Task) -> list[Array]:
        """Random inputs and what the outputs must be, in the order of the arguments."""
        if task.workload not in self._expected:
            _, tensors = task.instantiate(task.config_space.get(0))
            self._expected[task.workload] = inputs_and_outputs(tensors)
        return self._expected[task.workload]


def _refuse(what: str) -> NoReturn:
    raise BackendError(f"target 'vta': {what} is compiled by vta_sim.compiler from its schedule, not from loops")


class VtaBackend(Backend):
    """Templates are all that it really has."""

    kind = "vta"
    shares_host = True

    def __init__(self) -> None:
        self.trials = Trials()
        self.templates = self.trials

    def check(self, target: str) -> None:
        """Raise BackendError: sketches have no programs for this target."""
        _refuse("a program")

    def source(self, func: LoweredFunc, target: str) -> str:
        """Raise BackendError."""
        _refuse("a program")

    def build(self, func: LoweredFunc, target: str, directory: str) -> None:
        """Raise BackendError."""
        _refuse("a program")

    def open(self, index: int) -> MeasureDevice:
        """The simulated machine of preset number `index`, for programs that a template made elsewhere."""
        return SimulatedDevice(preset(TARGETS[index]), self.trials.model)

    def load_network(self, path: str, index: int) -> VtaModule:
        """A library that was exported, on the simulated machine of preset number `index`.

        Raises GraphError for a file that is no library, BackendError for one that is for another machine.
        """
        library = load_library(path)
        model = preset(TARGETS[index]).model
        ok = library.config.model == model
        require(ok, BackendError, "network", f"this machine is {model}", network=library.config.model)
        return library.on()

    def devices(self) -> list[DeviceInfo]:
        """The machines that can be simulated, one a preset."""
        return [DeviceInfo(self.kind, k, preset(name).model, f"simulator of {name}") for k, name in enumerate(TARGETS)]

    def module(self, func: LoweredFunc, target: str) -> Callable[..., Any]:
        """Raise BackendError."""
        _refuse("a program")

    def report(self) -> list[tuple[str, bool, str]]:
        """What `ansor doctor` prints."""
        name = str(templates.conv2d_template.task_name)
        return [("vta machine", True, self.trials.config.model), ("vta templates", True, name)]


BACKEND = VtaBackend()
