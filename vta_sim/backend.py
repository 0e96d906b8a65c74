"""What tuners need of target `vta`: configurations of templates become programs, which run on a simulated machine.

A simulated run takes the same time whenever it is repeated, so it is played once.  The search over sketches has no
part in this: a program for this machine is a template's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from ansor.autotvm.config import ConfigEntity
from ansor.autotvm.task import Task, Workload
from ansor.core.backend import Backend, Refusal, RunOptions
from ansor.core.backend import Device as MeasureDevice
from ansor.core.errors import BackendError
from ansor.core.hardware import HardwareParams
from ansor.core.measure_values import DeviceInfo, MeasureErrorNo, MeasureInput
from ansor.core.task import SearchTask
from te_lite import ComputeDAG, PlaceholderOp, Tensor
from te_lite.errors import TeError, require
from te_lite.reference import evaluate
from te_lite.stmt import LoweredFunc

from .compiler import Program, compile_schedule
from .compiler.module import Array, Module
from .core.config import TARGETS, Config, preset
from .core.errors import VtaError
from .measure.simulated_device import ProgramWriter, SimulatedDevice
from .network.executor import VtaModule
from .network.library import load_library
from .sim import PYNQ, CycleModel
from .top import templates

POISON = 0x55
SEED = 2020
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
        arrays = self._arrays(task)
        outputs = [k for k, arg in enumerate(program.args) if arg in program.outputs]
        given = [np.full_like(a, POISON) if k in outputs else a for k, a in enumerate(arrays)]
        module = Module(program)
        module.device.moves_tensors = options.check_correctness
        try:
            launch = module.launch(*given)
        except VtaError as error:
            return Refusal(MeasureErrorNo.RUNTIME_DEVICE, str(error))
        if options.check_correctness:
            for k in outputs:
                wrong = int(np.count_nonzero(given[k] != arrays[k]))
                if wrong:
                    text = f"{program.args[k].name}: {wrong} of {arrays[k].size} elements differ from the reference"
                    return Refusal(MeasureErrorNo.WRONG_ANSWER, text)
        return (launch.timing(self.model).ms / 1e3,)

    def program(self, task: Task, config: ConfigEntity) -> MeasureInput:
        """A configuration as a program that other machines can run.  Raises TeError when there is none."""
        with templates.on_machine(self.config):
            schedule, tensors = task.instantiate(config)
        if task.workload not in self._search_tasks:
            inputs = {t.name: array for t, array in _inputs(tensors).items()}
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
            found = evaluate(tensors, _inputs(tensors))
            self._expected[task.workload] = [found[t] for t in tensors]
        return self._expected[task.workload]


def _inputs(tensors: Sequence[Tensor]) -> dict[Tensor, Array]:
    """int8 inputs over their whole range; others so small that sums of them stay away from the limits."""
    rng = np.random.default_rng(SEED)
    inputs: dict[Tensor, Array] = {}
    for t in tensors:
        if isinstance(t.op, PlaceholderOp):
            high = 128 if t.dtype == "int8" else 1 << 15
            inputs[t] = rng.integers(-high, high, t.shape).astype(t.dtype)
    return inputs


def _refuse(what: str) -> NoReturn:
    raise BackendError(f"target 'vta': {what} comes from a template (ansor.autotvm), not from a sketch")


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
        names = ", ".join(sorted(f.task_name for f in (templates.conv2d_template, templates.dense_template)))
        return [("vta machine", True, self.trials.config.model), ("vta templates", True, names)]


BACKEND = VtaBackend()
