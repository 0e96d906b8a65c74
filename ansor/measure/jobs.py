"""What a worker does: build a program, prepare a task's data, run a program.

build    steps -> state, its weights packed if the task says so -> loop nest (error 1; 9 where the verifier refuses it),
         built by the backend (error 2)
prepare  inputs of a task and the outputs that are right for them: made once, kept as .npy files, put on the device
compare  load several programs, time them in turns (error 4)
run      load (error 3), run once on poisoned outputs (error 4), compare (error 5), time (error 4), look whether the
         inputs are as they were (error 5), and put them back for the next program
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from te_lite import ComputeDAG
from te_lite.dag_json import dag_from_json
from te_lite.errors import UnsafeError
from te_lite.lower import lower
from te_lite.reference import random_inputs
from te_lite.replay import replay
from te_lite.step import from_json

from ..core.backend import Array, Backend, Device, Program
from ..core.backends import load_backend
from ..core.layout_option import LayoutRewriteOption
from ..core.measure_values import MeasureErrorNo
from ..layout.packing import PackedLayout
from ..layout.rewrite import Rewritten, rewrite_layout_from_state
from .check import Accepted, accepted_values, mismatch, poison
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


@dataclass(frozen=True)
class Lent:
    """An input as a program gets it: the array on the device, and what it must still hold afterwards."""

    name: str
    handle: Any
    array: Array


@dataclass
class Prepared:
    """A task's data in the worker, by argument number: inputs, what is right for the outputs, arrays on the device."""

    task: str
    dag: ComputeDAG
    device: Device
    inputs: Mapping[int, Array]
    right: Mapping[int, Accepted]
    handles: list[Any]

    def lend(self, packed: Sequence[Any]) -> dict[int, Lent]:
        """The inputs for a program; those that `packed` lists are packed for it."""
        lent = {k: Lent(self.dag.tensors[k].name, self.handles[k], array) for k, array in self.inputs.items()}
        for k, digits in packed:
            array = self.inputs[k]
            layout = PackedLayout(array.shape, ("",) * array.ndim, tuple([(d, extent) for d, extent in digits]))
            array = layout.pack(array)
            lent[k] = Lent(lent[k].name, self.device.put(array), array)
        return lent

    def arguments(self, lent: Mapping[int, Lent]) -> list[Any]:
        """The device arrays that a program takes."""
        return [lent[k].handle if k in lent else handle for k, handle in enumerate(self.handles)]

    def take_back(self, lent: Mapping[int, Lent]) -> list[str]:
        """The names of the inputs that a program has changed; they are as before when this returns."""
        changed = [one for one in lent.values() if not _same_bits(self.device.get(one.handle), one.array)]
        for one in changed:
            self.device.write(one.handle, one.array)
        return [one.name for one in changed]


def _same_bits(a: Array, b: Array) -> bool:
    kind = f"u{a.dtype.itemsize}"
    return bool((np.ascontiguousarray(a).view(kind) == np.ascontiguousarray(b).view(kind)).all())


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
            inputs, right = _task_data(dag, Path(job["directory"]), int(job["seed"]))
        with stage(MeasureErrorNo.COMPILE_DEVICE):
            device = _backend(job).open(int(job["device"]))
            handles = [
                device.put(inputs[k] if k in inputs else poison(t.shape, t.dtype)) for k, t in enumerate(dag.tensors)
            ]
        self._prepared = Prepared(job["task"], dag, device, inputs, right, handles)
        return {"error_no": 0}

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        data = self._prepared
        assert data is not None and data.task == job["task"]
        with stage(MeasureErrorNo.COMPILE_DEVICE):
            program = data.device.load(job["directory"])
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            lent = data.lend(job["packed"])
            handles = data.arguments(lent)
            for k in data.right:
                data.device.write(data.handles[k], poison(data.dag.tensors[k].shape, data.dag.tensors[k].dtype))
            program.run(handles)
        check = bool(job.get("check", True))
        if check:
            self.compare(data)
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            costs = program.time(
                handles, int(job["number"]), int(job["repeat"]), int(job["min_repeat_ms"]), bool(job["flush"])
            )
            costs = [float(c) for c in costs]
            refuse_odd_times(costs)
        if check:
            self.look_at_inputs(data, lent)
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
                programs[k] = data.device.load(directory), data.arguments(data.lend(packed))
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
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            data.take_back(data.lend([]))
        return {"error_no": 0, "times": times}

    def compare(self, data: Prepared) -> None:
        """Raises JobFailure with WRONG_ANSWER when an output is not what the reference says."""
        for k, right in data.right.items():
            with stage(MeasureErrorNo.RUNTIME_DEVICE):
                got = data.device.get(data.handles[k])
            text = mismatch(got, right)
            if text:
                raise JobFailure(MeasureErrorNo.WRONG_ANSWER, f"output {data.dag.tensors[k].name}: {text}")

    def look_at_inputs(self, data: Prepared, lent: Mapping[int, Lent]) -> None:
        """Raises JobFailure with WRONG_ANSWER when a program wrote to its inputs; the next one finds them whole."""
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            changed = data.take_back(lent)
        if changed:
            raise JobFailure(MeasureErrorNo.WRONG_ANSWER, f"input {', '.join(changed)}: the program has written to it")


def _packed_inputs(dag: ComputeDAG, program: Rewritten) -> list[Any]:
    """`[argument number, digits of its packed layout]` of each input that a program takes packed."""
    changed = [k for k, (old, new) in enumerate(zip(dag.tensors, program.dag.tensors, strict=True)) if old != new]
    return [[k, program.layouts[dag.tensors[k]].digits] for k in changed if dag.tensors[k] in program.layouts]


def _backend(job: dict[str, Any]) -> Backend:
    return load_backend(job["backend"], job["kind"])


def _task_data(dag: ComputeDAG, directory: Path, seed: int) -> tuple[dict[int, Array], dict[int, Accepted]]:
    """Inputs (random, from `seed`, unless the directory has them) and what is right for them, by argument number."""
    given = {k: t for k, t in enumerate(dag.tensors) if t in dag.inputs}
    drawn = random_inputs(dag.tensors, np.random.default_rng(seed))
    inputs = {}
    for k, t in given.items():
        path = directory / f"{k}.npy"
        inputs[k] = np.load(path, allow_pickle=False) if path.exists() else drawn[t]
    stems = {k: directory / str(k) for k, t in enumerate(dag.tensors) if t in dag.outputs}
    right = {k: kept for k, stem in stems.items() if (kept := Accepted.load(stem)) is not None}
    if len(right) < len(stems):
        found = accepted_values(dag, {t: inputs[k] for k, t in given.items()})
        right = {k: found[dag.tensors[k]] for k in stems}
        for k, stem in stems.items():
            right[k].save(stem)
    return inputs, right
