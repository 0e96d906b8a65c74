"""Programs played on the simulated machine in this process, and their outputs compared bit for bit.

A simulated run takes the same time whenever it is repeated, so it is played once.  `PlayedRunner` measures the
programs of a search; nothing is built before, since compiling takes no longer than telling somebody else to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from ansor.core.tasks.measure_values import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult, Refusal, failed
from ansor.offline.common import NoBuilder, failed_build
from te_lite import PlaceholderOp, Tensor
from te_lite.errors import TeError
from te_lite.meaning.reference import evaluate

from ..compiler import Program, compile_schedule
from ..compiler.module import Array, Module
from ..core.errors import VtaError
from ..sim import PYNQ, CycleModel
from ..sketch import config_of

POISON = 0x55
SEED = 2020


def random_inputs(tensors: Sequence[Tensor]) -> dict[Tensor, Array]:
    """int8 inputs over their whole range; others so small that sums of them stay away from the limits."""
    rng = np.random.default_rng(SEED)
    inputs: dict[Tensor, Array] = {}
    for t in tensors:
        if isinstance(t.op, PlaceholderOp):
            high = 128 if t.dtype == "int8" else 1 << 15
            inputs[t] = rng.integers(-high, high, t.shape).astype(t.dtype)
    return inputs


def inputs_and_outputs(tensors: Sequence[Tensor], given: Mapping[Tensor, Array] | None = None) -> list[Array]:
    """Random inputs, or those given, and what the outputs must be, in the order of the tensors."""
    found = evaluate(tensors, given or random_inputs(tensors))
    return [found[t] for t in tensors]


def play(program: Program, expected: Sequence[Array], model: CycleModel, checks: bool) -> float | Refusal:
    """Seconds of a program on the modelled machine; `expected` are its inputs, and what its outputs must be.

    Without `checks` nothing is computed but the time.
    """
    outputs = [k for k, arg in enumerate(program.args) if arg in program.outputs]
    given = [np.full_like(a, POISON) if k in outputs else a for k, a in enumerate(expected)]
    module = Module(program)
    module.device.moves_tensors = checks
    try:
        launch = module.launch(*given)
    except VtaError as error:
        return Refusal(MeasureErrorNo.RUNTIME_DEVICE, str(error))
    for k in outputs if checks else ():
        wrong = int(np.count_nonzero(given[k] != expected[k]))
        if wrong:
            text = f"{program.args[k].name}: {wrong} of {expected[k].size} elements differ from the reference"
            return Refusal(MeasureErrorNo.WRONG_ANSWER, text)
    return launch.timing(model).ms / 1e3


class PlayedRunner:
    """The runner of target `vta`: the machine is the one that the target names, and disturbs nobody.

    Every program is checked.  `PlayedRunner.builder()` goes with it.
    """

    builder = NoBuilder
    elsewhere = True

    def __init__(self, model: CycleModel = PYNQ) -> None:
        self.model = model
        self._expected: dict[str, list[Array]] = {}

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        """Compile and play a program; one that is none ends with error 1."""
        if built.error_no:
            return failed_build(built)
        began = time.perf_counter()
        tensors = inp.task.compute_dag.tensors
        try:
            program = compile_schedule(inp.state, tensors, config_of(inp.task.target))
        except TeError as error:
            return failed(MeasureErrorNo.INSTANTIATION_ERROR, str(error), time.perf_counter() - began)
        key = inp.task.workload_key
        if key not in self._expected:
            self._expected[key] = inputs_and_outputs(tensors)
        found = play(program, self._expected[key], self.model, checks=True)
        spent = time.perf_counter() - began
        if isinstance(found, Refusal):
            return failed(found.error_no, found.reason, spent)
        return MeasureResult((found,), MeasureErrorNo.NO_ERROR, "", spent, int(time.time()))

    def close(self) -> None:
        """There is nothing to stop."""
