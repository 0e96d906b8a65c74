"""What a worker does: build a program, prepare a task's data, run a program.

build    steps -> state, its weights packed if the task says so -> loop nest (error 1; 9 where the verifier refuses it),
         built by the backend (error 2)
prepare  inputs and reference outputs of a task: made once, kept as .npy files, put on the device
compare  load several programs, time them in turns (error 4)
run      load (error 3), run once on poisoned outputs (error 4), compare (error 5), time (error 4)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from te_lite import ComputeDAG
from te_lite.dag_json import dag_from_json
from te_lite.errors import UnsafeError
from te_lite.lower import lower
from te_lite.reference import evaluate, random_inputs
from te_lite.replay import replay
from te_lite.step import from_json

from ..core.backend import Array, Backend, Device, Program
from ..core.backends import load_backend
from ..core.layout_option import LayoutRewriteOption
from ..core.measure_values import MeasureErrorNo
from ..layout.packing import PackedLayout
from ..layout.rewrite import Rewritten, rewrite_layout_from_state
from .check import mismatch, poison, reduction_terms, tolerance
from .networks import run_network

MAX_MESSAGE = 512


class JobFailure(Exception):
    """A job that failed in a known stage."""

    def __init__(self, error_no: MeasureErrorNo, message: str) -> None:
        super().__init__(message)
        self.error_no = error_no
        self.message = message


@contextmanager
def stage(error_no: MeasureErrorNo) -> Iterator[None]:
    """Whatever goes wrong inside is an error of this number; the message keeps both ends of a long text.

    A program that the verifier refuses is REFUSED.
    """
    try:
        yield
    except JobFailure:
        raise
    except Exception as error:
        error_no = MeasureErrorNo.REFUSED if isinstance(error, UnsafeError) else error_no
        text = f"{type(error).__name__}: {error}"
        if len(text) > MAX_MESSAGE:
            text = f"{text[: MAX_MESSAGE // 2]} ... {text[-MAX_MESSAGE // 2 :]}"
        raise JobFailure(error_no, text) from error


def refuse_odd_times(costs: Sequence[float]) -> None:
    """Raises ValueError unless there are times, all of them finite and above 0."""
    if not costs or not all(np.isfinite(c) and c > 0 for c in costs):
        raise ValueError(f"the times {costs} are not positive numbers")


@dataclass
class Prepared:
    """A task's data in the worker: arrays and device arrays in argument order, and the references of the outputs."""

    task: str
    dag: ComputeDAG
    device: Device
    arrays: list[Array]
    handles: list[Any]
    references: dict[int, Array]
    terms: int

    def arguments(self, packed: Sequence[Any]) -> list[Any]:
        """The device arrays that a program takes; the inputs that `packed` lists are packed for it."""
        handles = list(self.handles)
        for k, digits in packed:
            array = self.arrays[k]
            layout = PackedLayout(array.shape, ("",) * array.ndim, tuple([(d, extent) for d, extent in digits]))
            handles[k] = self.device.put(layout.pack(array))
        return handles


class Workbench:
    """The state of a worker between jobs: the computation and the data of the last task."""

    def __init__(self) -> None:
        self._dag: tuple[str, ComputeDAG] | None = None
        self._prepared: Prepared | None = None

    def do(self, job: dict[str, Any]) -> dict[str, Any]:
        """The answer to a job.  Raises JobFailure."""
        match job["op"]:
            case "build":
                return self.build(job)
            case "prepare":
                return self.prepare(job)
            case "run":
                return self.run(job)
            case "compare":
                return self.time_in_turns(job)
            case "network":
                with stage(MeasureErrorNo.RUNTIME_DEVICE):
                    return run_network(job)
        raise JobFailure(MeasureErrorNo.UNKNOWN_ERROR, f"unknown job {job['op']!r}")

    def dag(self, job: dict[str, Any]) -> ComputeDAG:
        """The computation of the job's task, decoded once."""
        if self._dag is None or self._dag[0] != job["task"]:
            self._dag = (job["task"], dag_from_json(job["dag"]))
        return self._dag[1]

    def build(self, job: dict[str, Any]) -> dict[str, Any]:
        with stage(MeasureErrorNo.INSTANTIATION_ERROR):
            dag = self.dag(job)
            state = replay(dag, map(from_json, job["steps"]))
            program = rewrite_layout_from_state(state, LayoutRewriteOption(job["layout"]))
            func = lower(program.state, program.dag.tensors)
        with stage(MeasureErrorNo.COMPILE_HOST):
            device = _backend(job)
            build = device.build_portable if job.get("portable") else device.build
            build(func, job["target"], job["directory"])
        return {"error_no": 0, "packed": _packed_inputs(dag, program)}

    def prepare(self, job: dict[str, Any]) -> dict[str, Any]:
        """Keep the task's data at hand; what is not yet in the job's directory is made and stored there."""
        self._prepared = None
        with stage(MeasureErrorNo.UNKNOWN_ERROR):
            dag = self.dag(job)
            arrays = _task_arrays(dag, Path(job["directory"]), int(job["seed"]))
        with stage(MeasureErrorNo.COMPILE_DEVICE):
            device = _backend(job).open(int(job["device"]))
            outputs = {k for k, t in enumerate(dag.tensors) if t in dag.outputs}
            handles = [
                device.put(poison(t.shape, t.dtype) if k in outputs else arrays[k]) for k, t in enumerate(dag.tensors)
            ]
        references = {k: arrays[k] for k in outputs}
        self._prepared = Prepared(job["task"], dag, device, arrays, handles, references, reduction_terms(dag))
        return {"error_no": 0}

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        data = self._prepared
        assert data is not None and data.task == job["task"]
        with stage(MeasureErrorNo.COMPILE_DEVICE):
            program = data.device.load(job["directory"])
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            handles = data.arguments(job["packed"])
            for k in data.references:
                data.device.write(data.handles[k], poison(data.dag.tensors[k].shape, data.dag.tensors[k].dtype))
            program.run(handles)
            got = {k: data.device.get(data.handles[k]) for k in data.references}
        if job.get("check", True):
            self.compare(data, got)
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            costs = program.time(
                handles, int(job["number"]), int(job["repeat"]), int(job["min_repeat_ms"]), bool(job["flush"])
            )
            costs = [float(c) for c in costs]
            refuse_odd_times(costs)
        return {"error_no": 0, "costs": costs}

    def time_in_turns(self, job: dict[str, Any]) -> dict[str, Any]:
        """Time programs that were found right before, one after the other, `rounds` times.

        One that does not load, or stops to run, has no figures.
        """
        data = self._prepared
        assert data is not None and data.task == job["task"]
        times: list[list[float]] = [[] for _ in job["directories"]]
        programs: dict[int, tuple[Program, list[Any]]] = {}
        for k, (directory, packed) in enumerate(zip(job["directories"], job["packed"], strict=True)):
            with suppress(JobFailure), stage(MeasureErrorNo.COMPILE_DEVICE):
                programs[k] = data.device.load(directory), data.arguments(packed)
        for _ in range(int(job["rounds"])):
            for k, (program, handles) in list(programs.items()):
                try:
                    with stage(MeasureErrorNo.RUNTIME_DEVICE):
                        times[k] += program.time(
                            handles, int(job["number"]), 1, int(job["min_repeat_ms"]), bool(job["flush"])
                        )
                except JobFailure:
                    times[k] = []
                    del programs[k]
        return {"error_no": 0, "times": times}

    def compare(self, data: Prepared, got: dict[int, Array]) -> None:
        """Raises JobFailure with WRONG_ANSWER when an output is not what the reference says."""
        for k, array in got.items():
            tensor = data.dag.tensors[k]
            text = mismatch(array, data.references[k], tolerance(tensor.dtype, data.terms))
            if text:
                raise JobFailure(MeasureErrorNo.WRONG_ANSWER, f"output {tensor.name}: {text}")


def _packed_inputs(dag: ComputeDAG, program: Rewritten) -> list[Any]:
    """`[argument number, digits of its packed layout]` of each input that a program takes packed."""
    changed = [k for k, (old, new) in enumerate(zip(dag.tensors, program.dag.tensors, strict=True)) if old != new]
    return [[k, program.layouts[dag.tensors[k]].digits] for k in changed if dag.tensors[k] in program.layouts]


def _backend(job: dict[str, Any]) -> Backend:
    return load_backend(job["backend"], job["kind"])


def _task_arrays(dag: ComputeDAG, directory: Path, seed: int) -> list[Array]:
    """Inputs (random, from `seed`, unless the directory has them) and float64 references, in argument order."""
    paths = [directory / f"{k}.npy" for k in range(len(dag.tensors))]
    if all(p.exists() for p in paths):
        return [np.load(p, allow_pickle=False) for p in paths]
    inputs = random_inputs(dag.tensors, np.random.default_rng(seed))
    for k, t in enumerate(dag.tensors):
        if paths[k].exists():
            inputs[t] = np.load(paths[k], allow_pickle=False)
    values = evaluate(dag.tensors, inputs, "float64")
    arrays = [inputs[t] if t in inputs else values[t] for t in dag.tensors]
    for path, array in zip(paths, arrays, strict=True):
        scratch = path.with_suffix(".part.npy")
        np.save(scratch, array, allow_pickle=False)
        scratch.replace(path)
    return arrays
