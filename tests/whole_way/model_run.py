"""Random ONNX models imported, compiled for C with some level of passes and run, against the oracle."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

import relay_lite as relay
from codegen_c.compile import OBJECT_FLAGS
from relay_lite.frontend import from_onnx
from relay_lite.transform.sequential import PassContext
from te_lite.errors import TeError
from tests.compiled_soon import soon

from .bounded import Value, compared, mismatch
from .model import Model, arrays, onnx_of
from .model_oracle import evaluate
from .outcome import Finding, Outcome, raised

Watch = Callable[[str], None]
OPTIMISED = 8
"""One model of so many is compiled as users compile it, all others sooner."""


@dataclass(frozen=True)
class ModelJob:
    """A model to import, compile and run."""

    seed: int
    model: Model


def run_models(jobs: Sequence[ModelJob], watch: Watch = lambda text: None) -> list[Outcome]:
    """The outcome of each model."""
    told = logging.root.manager.disable
    with tempfile.TemporaryDirectory(prefix="whole_way_") as folder, patch.dict(os.environ, CODEGEN_C_CACHE=folder):
        try:
            logging.disable(logging.WARNING)  # which kernels have no record
            return [_outcome(job, watch) for job in jobs]
        finally:
            logging.disable(told)


def _outcome(job: ModelJob, watch: Watch) -> Outcome:
    outcome, model = Outcome(job.seed), job.model
    watch(f"seed {job.seed}: oracle")
    known = evaluate(model)
    wanted = [known[o] for o in model.outputs]
    outcome.compared = float(np.mean([compared(want) for want in wanted]))
    phase = "import"
    try:
        watch(f"seed {job.seed}: import")
        module, _ = from_onnx(onnx_of(model))
        phase = "compile"
        watch(f"seed {job.seed}: compile")
        with ExitStack() as entered:
            if job.seed % OPTIMISED:
                entered.enter_context(patch("codegen_c.network.OBJECT_FLAGS", soon(OBJECT_FLAGS)))
            entered.enter_context(PassContext(opt_level=model.level))
            lib = relay.build(module, "c")
        phase = "run"
        watch(f"seed {job.seed}: run")
        got = _results(lib, model)
    except TeError as error:
        if type(error).__name__ in ("CompileError", "CallError"):
            outcome.findings.append(Finding("compiler", phase, "c", str(error)))
        else:
            outcome.refuse(phase, "c", error)
    except Exception as error:
        outcome.findings.append(Finding("exception", phase, "c", raised(error)))
    else:
        _compare(wanted, got, outcome)
    return outcome


def _results(lib: Any, model: Model) -> list[np.ndarray]:
    runner = relay.graph_executor.GraphModule(lib["default"]())
    runner.run(**{f"n{k}": x for k, x in arrays(model).items()})
    return [np.asarray(runner.get_output(k).numpy()) for k in range(len(model.outputs))]


def _compare(wanted: Sequence[Value], got: Sequence[np.ndarray], outcome: Outcome) -> None:
    for k, (want, array) in enumerate(zip(wanted, got, strict=True)):
        if (array.shape, array.dtype.name) != (want.v.shape, want.dtype):
            text: str | None = f" is {array.dtype}{array.shape}, not {want.dtype}{want.v.shape}"
        else:
            text = mismatch(want, array)
        if text:
            outcome.findings.append(Finding("mismatch", "run", "c", f"output {k}{text}"))
        else:
            outcome.programs["outputs of models"] += 1
