"""A runner that answers with the estimate of the analytical model: for tests, classrooms and search experiments."""

from __future__ import annotations

import hashlib
import math

import numpy as np

from ansor.analytical import GPU, Machine, machine_of, seconds
from te_lite.bounds.bounds import Bounds, infer_bounds
from te_lite.bounds.loop_scope import THREADS
from te_lite.errors import TeError, require
from te_lite.expr.lanes import product

from ..core.errors import TaskError
from ..core.tasks.measure_values import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult, failed
from ..sketch.shared_memory import shared_bytes
from ..space.programs import Programs
from .common import NoBuilder, failed_build, program_key


class AnalyticalRunner:
    """Gives every program its estimated seconds; `AnalyticalRunner.builder()` goes with it.

    `machine` defaults to what a task's target and hardware parameters say.  With `noise` the estimate is multiplied by
    exp(noise * z), z from a normal distribution that the program and `seed` decide: the same program gets the same
    answer, in every process.  A program that has no bounds ends with error 1, one that exceeds the threads or the
    shared memory of a block with error 4.  Raises TaskError for a noise that is not a number of at least 0.
    """

    builder = NoBuilder

    def __init__(self, machine: Machine | None = None, noise: float = 0.0, seed: int = 0) -> None:
        ok = isinstance(noise, int | float) and not isinstance(noise, bool) and 0 <= noise < math.inf
        require(ok, TaskError, "AnalyticalRunner", "noise must be a number of at least 0", got=noise)
        self.machine = machine
        self.noise = float(noise)
        self.seed = seed

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        """The estimate as a result; no time passes, so its times are 0.  A failed build gives its error."""
        if built.error_no:
            return failed_build(built)
        task = inp.task
        try:
            bounds = infer_bounds(inp.state)
        except TeError as error:
            return failed(MeasureErrorNo.INSTANTIATION_ERROR, str(error), 0.0, timestamp=0)
        machine = machine_of(task.target, task.hardware_params) if self.machine is None else self.machine
        refusal = _refusal(bounds, inp) if isinstance(machine, GPU) else ""
        if refusal:
            return failed(MeasureErrorNo.RUNTIME_DEVICE, refusal, 0.0, timestamp=0)
        cost = float(seconds(Programs(bounds), machine)[0]) * math.exp(self.noise * self._normal(inp))
        return MeasureResult((cost,), 0, "", 0.0, 0)

    def _normal(self, inp: MeasureInput) -> float:
        """A normally distributed number that belongs to the program."""
        digest = hashlib.sha256(repr((self.seed, program_key(inp))).encode()).digest()
        return float(np.random.default_rng(np.frombuffer(digest, np.uint32)).standard_normal())

    def close(self) -> None:
        """There is nothing to stop."""


def _refusal(bounds: Bounds, inp: MeasureInput) -> str:
    """Why a GPU would not start the program; empty when it would."""
    hardware = inp.task.hardware_params
    threads = max(
        [
            product([it.extent for it in stage.iters if it.annotation == tag])
            for stage in bounds.state.stages
            for tag in THREADS
        ]
    )
    if threads > hardware.max_threads_per_block:
        return f"{threads} threads in a block, the limit is {hardware.max_threads_per_block}"
    shared = max(shared_bytes(bounds).values(), default=0)
    if shared > hardware.max_shared_memory_per_block:
        return f"{shared} bytes of shared memory in a block, the limit is {hardware.max_shared_memory_per_block}"
    return ""
