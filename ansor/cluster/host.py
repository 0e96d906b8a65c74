"""A device on the network: an actor on the device's machine that answers with measurements.

Programs run in a worker process below the actor, the one that every runner has (`ansor.measure.device_runner`): it may
hang or crash, which costs a candidate one retry on a fresh worker.  The actor itself only unpacks messages, so it
answers while a program hangs.  A client sends a task's computation once, when the host says that it needs it.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

from ansor.measure.workers import Workshop
from te_lite.errors import TeError, require

from ..core.errors import MeasureError
from ..core.target.registry import register_backend
from ..core.tasks.measure_values import BuildResult, MeasureInput, RunOptions
from ..core.tasks.task import SearchTask
from ..measure.channel import result_to_json
from ..measure.device_runner import DeviceRunner
from ..measure.task_data import TaskData
from .message import Files, pack, unpack
from .remote_session import HostedSession
from .request import MeasureRequest, SentProgram, measure_request, part, sent_task

TASKS = 8
IDLE = RunOptions(number=1, repeat=1)


class DeviceHost:
    """Runs what it is sent, one program at a time.

    `facts` is `{"label", "kind", "index", "backends": {kind: module}, "threads": OMP_NUM_THREADS or null}` as JSON.
    """

    def __init__(self, facts: str) -> None:
        given = json.loads(facts)
        self.kind = str(given["kind"])
        self.label = str(given["label"])
        self.index = int(given["index"])
        for kind, module in given["backends"].items():
            register_backend(kind, module)
        _restore_threads(given["threads"])
        self._workshop = Workshop()
        self._data = TaskData(self._workshop)
        self._runner = self._new_runner()
        self._tasks: OrderedDict[str, SearchTask] = OrderedDict()
        self._session = HostedSession(self._workshop, self.kind, self.index)
        self._lock = threading.Lock()
        self._lease = 0
        self._interrupted = False

    def _new_runner(self) -> DeviceRunner:
        return DeviceRunner(self._data, IDLE, self.index, self.label)

    def ping(self) -> None:
        """The host answers."""

    def measure(self, message: bytes) -> bytes:
        """Run a program, or compare several.

        The object is `{"op", "lease", "task", "options", "programs": [{"packed", "seconds"}]}`, with `"task_data"` when
        the host asked for it; program k's files are called `k/NAME`, task inputs `input/NAME`.  The answer is
        `{"result": [...], "lost": count}`, `{"times"}`, `{"need": "task"}` or `{"refusal": sentence}`.
        """
        with self._lock:
            try:
                return pack(self._answer(*unpack(message)))
            except TeError as error:
                return pack({"refusal": f"{self.label}: {error}"})
            finally:
                self._lease = 0

    def session(self, message: bytes) -> bytes:
        """What a remote session asks for, see `HostedSession.answer`; or `{"refusal": sentence}`."""
        with self._lock:
            try:
                header, files = unpack(message)
                self._lease = part(header, "lease", int)
                return pack(*self._session.answer(header, files))
            except TeError as error:
                return pack({"refusal": str(error)})
            finally:
                self._lease = 0

    def interrupt(self, lease: int) -> None:
        """End the run of a client that does not want it any more."""
        if lease == self._lease:
            self._interrupted = True
            self._runner.stop()
            self._session.interrupt()

    def close(self) -> None:
        """End the worker process and remove its files."""
        self._runner.stop()
        with self._lock:
            self._runner.close()
            self._session.clear()
            self._workshop.close()

    # ------------------------------------------------------------------------------------------------------ parts

    def _answer(self, header: dict[str, Any], files: Files) -> dict[str, Any]:
        self._lease = part(header, "lease", int)
        request = measure_request(header)
        self._session.clear()
        task = self._task(request, files)
        if task is None:
            return {"need": "task"}
        self._runner.options = request.options
        programs = [self._program(k, sent, files) for k, sent in enumerate(request.programs)]
        inputs = [MeasureInput(task) for _ in programs]
        lost = self._runner.lost
        try:
            if request.op == "compare":
                return {"times": self._runner.compare(inputs, programs)}
            result = self._runner.run(inputs[0], programs[0])
            return {"result": result_to_json(result), "lost": self._runner.lost - lost}
        finally:
            if self._interrupted:
                self._interrupted = False
                self._runner.close()
                self._runner = self._new_runner()
            for built in programs:
                shutil.rmtree(built.filename, ignore_errors=True)

    def _program(self, k: int, sent: SentProgram, files: Files) -> BuildResult:
        """Program k of a message in a directory of its own."""
        directory = self._workshop.new("program_")
        for name, data in files.items():
            place, _, plain = name.partition("/")
            if place == str(k):
                require(Path(plain).name == plain, MeasureError, "message", "a plain file name is needed", got=plain)
                (directory / plain).write_bytes(data)
        return BuildResult(str(directory), sent.packed, 0, "", sent.seconds)

    def _task(self, request: MeasureRequest, files: Files) -> SearchTask | None:
        """The task of a message, None when its computation must be sent first."""
        if request.task not in self._tasks:
            if request.task_data is None:
                return None
            self._tasks[request.task] = sent_task(self.kind, request.task_data, files)
            while len(self._tasks) > TASKS:
                self._tasks.popitem(last=False)
        self._tasks.move_to_end(request.task)
        return self._tasks[request.task]


def _restore_threads(wanted: str | None) -> None:
    """The engine allows its processes one OpenMP thread; programs run with what the server's environment says."""
    os.environ.pop("OMP_NUM_THREADS", None)
    if wanted is not None:
        os.environ["OMP_NUM_THREADS"] = wanted
