"""The machine as a device of measuring workers: programs that were made elsewhere come as steps, and are compiled here.

A program is a file with the computation, the steps of its schedule and the machine it is for, all of it JSON.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

import numpy as np

from ansor.core.files.private_files import scratch_folder
from ansor.core.tasks.measure_values import BuildResult, MeasureErrorNo, MeasureInput
from ansor.measure.jobs import JobFailure
from te_lite.errors import TeError
from te_lite.printing.dag_json import dag_from_json, dag_to_json
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json, to_json

from ..compiler import compile_schedule
from ..compiler.module import Array, Module
from ..core.config import Config, config_from_json
from ..sim import PYNQ, CycleModel

FILE = "program.json"


class ProgramWriter:
    """A builder: it writes programs for one machine down, and leaves compiling to the machines that run them."""

    n_parallel = 1

    def __init__(self, config: Config) -> None:
        self.config = config
        self._folder = scratch_folder("simulated")

    def submit(self, inp: MeasureInput) -> Future[BuildResult]:
        """A build that is done."""
        directory = tempfile.mkdtemp(dir=self._folder.name)
        facts = {
            "machine": self.config.to_json(), "dag": dag_to_json(inp.task.compute_dag),
            "steps": [to_json(s) for s in inp.steps],
        }  # fmt: skip
        (Path(directory) / FILE).write_text(json.dumps(facts))
        done: Future[BuildResult] = Future()
        done.set_result(BuildResult(directory, (), 0, "", 0.0))
        return done

    def close(self) -> None:
        """Remove what was written."""
        self._folder.cleanup()


class SimulatedProgram:
    """A compiled program; `run` plays it, and as a simulated run takes the same time again, `time` knows it then."""

    def __init__(self, module: Module, model: CycleModel) -> None:
        self.module = module
        self.model = model
        self.seconds = 0.0

    def run(self, args: Sequence[Array]) -> None:
        """Play it on arrays.  Raises VtaError for what the machine refuses."""
        self.seconds = self.module.launch(*args).timing(self.model).ms / 1e3

    def time(
        self, args: Sequence[Array], number: int, repeat: int, min_repeat_ms: int, flush: bool, best: float
    ) -> list[float]:
        """Seconds of the run on the modelled machine, one timing."""
        return [self.seconds]


class SimulatedDevice:
    """A machine with NumPy arrays."""

    def __init__(self, config: Config, model: CycleModel = PYNQ) -> None:
        self.config = config
        self.model = model

    def put(self, array: Array) -> Array:
        """A copy."""
        return np.array(array)

    def write(self, handle: Array, array: Array) -> None:
        """Overwrite an array."""
        handle[...] = array

    def get(self, handle: Array) -> Array:
        """The array itself."""
        return handle

    def load(self, directory: str) -> SimulatedProgram:
        """Compile a program.  Raises JobFailure, an instantiation error, when there is none for this machine."""
        try:
            facts = json.loads((Path(directory) / FILE).read_text())
            machine = config_from_json(facts["machine"], "program")
            if machine.model != self.config.model:
                raise JobFailure(
                    MeasureErrorNo.COMPILE_DEVICE, f"the program is for {machine.model}, this is {self.config.model}"
                )
            dag = dag_from_json(facts["dag"])
            state = replay(dag, map(from_json, facts["steps"]))
            return SimulatedProgram(Module(compile_schedule(state, dag.tensors, machine)), self.model)
        except TeError as error:
            raise JobFailure(MeasureErrorNo.INSTANTIATION_ERROR, str(error)) from error
