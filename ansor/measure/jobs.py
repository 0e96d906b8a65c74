"""What a worker does: build a program, make and prepare a task's data, run a program.

build    steps -> state, its weights packed if the task says so -> loop nest (error 1; 9 where the verifier refuses it),
         built by the backend (error 2)
data     inputs of a task and the outputs that are right for them: made once, kept as .npy files
prepare  the same, put on the device; or, of large tasks, drawn there (`drawn_task.py`)
compare  load several programs, time them in turns (error 4)
run      load (error 3), run once on poisoned outputs (error 4), compare (error 5), time (error 4), look whether the
         inputs are as they were (error 5), put them back for the next program, compare what the last run left (error 5)

Arrays are made and uploaded once a task; `array_checks.py` says where they are looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from te_lite import ComputeDAG
from te_lite.errors import UnsafeError
from te_lite.lowering.lower import lower
from te_lite.meaning.reference import random_inputs
from te_lite.printing.dag_json import dag_from_json
from te_lite.schedule.replay import replay
from te_lite.schedule.step import steps_from_json

from ..core.device.backend import Array, Backend, DrawsArrays, Program, load_backend
from ..core.host.process import collector_paused
from ..core.target.registry import WORKER_JOBS, worker_answer
from ..core.target.target import Target
from ..core.tasks.measure_values import MeasureErrorNo
from ..core.values.options import LayoutRewriteOption
from ..layout.rewrite import Rewritten, rewrite_layout_from_state
from . import turns
from .array_checks import array_checks
from .check import Accepted, accepted_values, poison, save_whole
from .drawn_task import DrawnTask, bytes_needed, drawing_device, drawn_task, may_be_drawn
from .networks import run_network
from .parts import in_parts
from .plain_program import run_plain
from .prepared import HeldTask, TaskArrays, data_bytes
from .samples import Definition, samples_of

MAX_MESSAGE = 512
KEPT_BYTES = 1 << 30
"""What the data of tasks that the host holds may take, on the host; about as much on the device."""
KEPT_ON_DEVICE = 1 << 34
"""What the data of tasks that are drawn on the device may take there, and half of what is free at most."""


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


class Workbench:
    """The state of a worker between jobs: the last computation, the data of the last tasks, the best time of each."""

    def __init__(self) -> None:
        self._dag: tuple[str, ComputeDAG] | None = None
        self._prepared: dict[str, TaskArrays] = {}
        self._best: dict[str, float] = {}

    def do(self, job: dict[str, Any]) -> dict[str, Any]:
        """The answer to a job.  Raises JobFailure."""
        match job["op"]:
            case "build":
                with collector_paused():
                    return self.build(job)
            case "data":
                return self.make_data(job)
            case "prepare":
                return self.prepare(job)
            case "run":
                return self.run(job)
            case "compare":
                return self.time_in_turns(job)
            case "network":
                with stage(MeasureErrorNo.RUNTIME_DEVICE):
                    return run_network(job)
            case other if other in WORKER_JOBS:
                with stage(MeasureErrorNo.INSTANTIATION_ERROR), collector_paused():
                    return worker_answer(job)
        raise JobFailure(MeasureErrorNo.UNKNOWN_ERROR, f"unknown job {job['op']!r}")

    def dag(self, job: dict[str, Any]) -> ComputeDAG:
        """The computation of the job's task, decoded once."""
        if self._dag is None or self._dag[0] != job["task"]:
            self._dag = (job["task"], dag_from_json(job["dag"]))
        return self._dag[1]

    def build(self, job: dict[str, Any]) -> dict[str, Any]:
        with stage(MeasureErrorNo.INSTANTIATION_ERROR):
            dag = self.dag(job)
            state = replay(dag, steps_from_json(job["steps"]))
            program = rewrite_layout_from_state(state, LayoutRewriteOption(job["layout"]))
            func = lower(program.state, program.dag.tensors)
        with stage(MeasureErrorNo.COMPILE_HOST):
            device = _backend(job)
            build = device.build_portable if job.get("portable") else device.build
            build(func, job["target"], job["directory"])
        return {"error_no": 0, "packed": _packed_inputs(dag, program)}

    def make_data(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make the task's data, and store them in the job's directory, for those who prepare it.

        Of one that a GPU will probably draw, only what is known at samples.
        """
        with stage(MeasureErrorNo.UNKNOWN_ERROR):
            dag, folder = self.dag(job), Path(job["directory"])
            if may_be_drawn(dag, folder) and Target.of(job["target"]).is_gpu:
                if in_parts(dag) is None:  # which are computed on the device
                    samples_of(_definition(dag, job), folder)
            else:
                _task_data(dag, folder, int(job["seed"]), job["precision"])
        return {"error_no": 0}

    def prepare(self, job: dict[str, Any]) -> dict[str, Any]:
        """Keep the task's data at hand; what is not yet in the job's directory is made and stored there.

        Of earlier tasks those used last are kept, too, as long as there is room; the answer names all.
        """
        with stage(MeasureErrorNo.UNKNOWN_ERROR):
            dag, folder = self.dag(job), Path(job["directory"])
        device = None
        if may_be_drawn(dag, folder):
            with stage(MeasureErrorNo.COMPILE_DEVICE):
                device = drawing_device(_backend(job).open(int(job["device"])), dag)
        self._prepared.pop(job["task"], None)
        made = self._held(job, dag, folder) if device is None else self._drawn(job, dag, folder, device)
        self._prepared[job["task"]] = made
        return {"error_no": 0, "held": list(self._prepared)}

    def _held(self, job: dict[str, Any], dag: ComputeDAG, folder: Path) -> HeldTask:
        with stage(MeasureErrorNo.UNKNOWN_ERROR):
            inputs, right = _task_data(dag, folder, int(job["seed"]), job["precision"])
        self._make_room(HeldTask, data_bytes(inputs, right), KEPT_BYTES)
        with stage(MeasureErrorNo.COMPILE_DEVICE):
            device = _backend(job).open(int(job["device"]))
            handles = [
                device.put(inputs[k] if k in inputs else poison(t.shape, t.dtype)) for k, t in enumerate(dag.tensors)
            ]
            checks = array_checks(device, [dag.tensors[k] for k in right], data_bytes(inputs, right))
            kept = {k: checks.keep(array) for k, array in inputs.items()}
            kept |= {k: checks.keep_bounds(r) for k, r in right.items()}
        return HeldTask(job["task"], dag, device, inputs, right, handles, checks, kept)

    def _drawn(self, job: dict[str, Any], dag: ComputeDAG, folder: Path, device: DrawsArrays) -> DrawnTask:
        with stage(MeasureErrorNo.UNKNOWN_ERROR):
            parts = in_parts(dag)
            definition = _definition(parts.dag if parts else dag, job)
            samples = {} if parts else samples_of(definition, folder)
        needed = bytes_needed(definition.dag, samples)
        self._make_room(DrawnTask, needed, min(KEPT_ON_DEVICE, self._bytes(DrawnTask) + device.free_bytes() // 2))
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            run = partial(run_plain, definition.dag, _backend(job), job["target"])
            return drawn_task(job["task"], definition, samples, device, run, parts, folder)

    def _bytes(self, kind: type) -> int:
        """The memory that the data of all tasks of a kind take."""
        return sum([p.nbytes for p in self._prepared.values() if isinstance(p, kind)])

    def _make_room(self, kind: type, nbytes: int, most: int) -> None:
        """Drop the data of tasks of a kind that were not used for long, for one whose data take `nbytes`."""
        for task in [t for t, p in self._prepared.items() if isinstance(p, kind)]:
            if nbytes + self._bytes(kind) > most:
                del self._prepared[task]

    def _data_of(self, task: str) -> TaskArrays:
        """The data of a task that is prepared; it is the one used last from now on."""
        data = self._prepared[task] = self._prepared.pop(task)
        return data

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        data = self._data_of(job["task"])
        with stage(MeasureErrorNo.COMPILE_DEVICE):
            program = data.device.load(job["directory"])
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            lent = data.lend(job["packed"])
            handles = data.arguments(lent)
            data.poison_outputs()
            program.run(handles)
        check = bool(job.get("check", True))
        if check:
            self.look_at_outputs(data, lent)
        best = self._best.get(data.task, math.inf)
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            costs = program.time(
                handles, int(job["number"]), int(job["repeat"]), int(job["min_repeat_ms"]), bool(job["flush"]), best
            )
            costs = [float(c) for c in costs]
            refuse_odd_times(costs)
        if check:
            self.look_at_inputs(data, lent)
            self.look_at_outputs(data, lent)
        self._best[data.task] = min(best, *costs)
        return {"error_no": 0, "costs": costs}

    def time_in_turns(self, job: dict[str, Any]) -> dict[str, Any]:
        """Time programs that were found right before, in turns: `rounds` figures each, or, without, as `race` does.

        One that does not load, or stops to run, has no figures.
        """
        data = self._data_of(job["task"])
        programs: dict[int, tuple[Program, list[Any]]] = {}
        for k, (directory, packed) in enumerate(zip(job["directories"], job["packed"], strict=True)):
            with suppress(JobFailure), stage(MeasureErrorNo.COMPILE_DEVICE):
                programs[k] = data.device.load(directory), data.arguments(data.lend(packed))

        def figure(k: int) -> float | None:
            if k not in programs:
                return None
            program, handles = programs[k]
            with suppress(JobFailure), stage(MeasureErrorNo.RUNTIME_DEVICE):
                return float(
                    program.time(
                        handles, int(job["number"]), 1, int(job["min_repeat_ms"]), bool(job["flush"]), math.inf
                    )[0]
                )
            return None

        count, rounds = len(job["directories"]), job["rounds"]
        times = turns.race(count, figure) if rounds is None else turns.figures(count, figure, int(rounds))
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            data.take_back(data.lend([]))
        return {"error_no": 0, "times": times}

    def look_at_outputs(self, data: TaskArrays, lent: Mapping[int, Any]) -> None:
        """Raises JobFailure with WRONG_ANSWER when an output is not what the reference says; inputs are whole then."""
        with stage(MeasureErrorNo.RUNTIME_DEVICE):
            wrong = data.wrong_outputs()
            if wrong:
                data.take_back(lent)
        if wrong:
            raise JobFailure(MeasureErrorNo.WRONG_ANSWER, wrong[0])

    def look_at_inputs(self, data: TaskArrays, lent: Mapping[int, Any]) -> None:
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


def _definition(dag: ComputeDAG, job: dict[str, Any]) -> Definition:
    return Definition(dag, int(job["seed"]), job["precision"])


def _task_data(
    dag: ComputeDAG, directory: Path, seed: int, precision: str
) -> tuple[dict[int, Array], dict[int, Accepted]]:
    """Inputs and what is right for them, by argument number; those that the directory lacks are made and kept there.

    Inputs are random, from `seed`.
    """
    given = {k: t for k, t in enumerate(dag.tensors) if t in dag.inputs}
    paths = {k: directory / f"{k}.npy" for k in given}
    if not all(path.exists() for path in paths.values()):
        drawn = random_inputs(dag.tensors, np.random.default_rng(seed))
        for k, t in given.items():
            if not paths[k].exists():
                save_whole(paths[k], drawn[t])
    inputs = {k: np.load(paths[k], allow_pickle=False).view(t.dtype) for k, t in given.items()}
    stems = {k: directory / str(k) for k, t in enumerate(dag.tensors) if t in dag.outputs}
    right = {k: kept for k, stem in stems.items() if (kept := Accepted.load(stem)) is not None}
    if len(right) < len(stems):
        found = accepted_values(dag, {t: inputs[k] for k, t in given.items()}, precision)
        right = {k: found[dag.tensors[k]] for k in stems}
        for k, stem in stems.items():
            right[k].save(stem)
    return inputs, right
