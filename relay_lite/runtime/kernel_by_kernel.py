"""Networks on a target that runs programs and says nothing of networks: one kernel after the other, on copies.

Every kernel is a program of `Backend.build`, kept as an archive of the files that it left.  A step copies its arguments
to the device and what was written back, so this is a beginning and no fast way to run a network.
"""

from __future__ import annotations

import io
import math
import platform
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansor.core.device.backend import Backend, Program
from ansor.core.device.nd import ALIGNMENT, DeviceId
from ansor.core.device.network_backend import CompiledNetwork
from ansor.core.device.network_memory import HostMemory
from ansor.core.device.network_plan import ExecutionPlan, KernelCode, Step
from ansor.core.files.private_files import scratch_folder
from ansor.core.values.recurrence import Recurrence
from te_lite.errors import require
from te_lite.loops.stmt import LoweredFunc

from ..ir.errors import GraphError

ARCHIVE = ".zip"


def _packed(folder: Path) -> bytes:
    """The files of a folder, as one."""
    text = io.BytesIO()
    with zipfile.ZipFile(text, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.iterdir()):
            archive.writestr(zipfile.ZipInfo(path.name), path.read_bytes())
    return text.getvalue()


def _unpacked(data: bytes, folder: Path) -> str:
    folder.mkdir()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(folder)
    return str(folder)


class KernelExecutor(HostMemory):
    """A network whose tensors are in the memory of this machine between its steps (see `Executor`)."""

    def __init__(self, backend: Backend, network: CompiledNetwork, index: int) -> None:
        super().__init__(network, DeviceId(backend.kind, index))
        self._device = backend.open(index)
        self._arguments = {name: kernel.facts["arguments"] for name, kernel in network.kernels.items()}
        self._folder = scratch_folder("kernels")
        self._programs: dict[str, Program] = {}
        for name in self._arguments:
            files = _unpacked(network.binaries[name + ARCHIVE], Path(self._folder.name) / name)
            self._programs[name] = self._device.load(files)

    def run(self, stream: int | None = None) -> None:
        for step in self._taken(0, len(self.plan.steps)):
            self._step(step)

    def _taken(self, first: int, last: int) -> Iterator[Step]:
        """The steps that run, one after the other."""
        k = first
        while k < last:
            step, k = self.plan.steps[k], k + 1
            if not self._is_taken(step):
                continue
            if step.kernel:
                yield step
            elif k - 1 - step.back >= first:
                k -= 1 + step.back

    def _is_taken(self, step: Step) -> bool:
        """Whether the bools under which a step runs are what they must be."""
        return all(self.bytes_of(s)[0] for s in step.where) and not any(self.bytes_of(s)[0] for s in step.unless)

    def _step(self, step: Step) -> list[Any]:
        """Run a step; the device arrays it ran on."""
        arguments = self._arguments[step.kernel]
        views = [
            self.bytes_of(storage).view(dtype).reshape(tuple(shape))
            for storage, (shape, dtype) in zip(step.storages, arguments, strict=True)
        ]
        handles = [self._device.put(view) for view in views]
        self._programs[step.kernel].run(handles)
        for storage, view, handle in zip(step.storages, views, handles, strict=True):
            if storage in step.written:
                view[...] = self._device.get(handle)
        return handles

    def seconds(self, number: int, first: int = 0, last: int | None = None) -> float:
        """As the device times its programs: copies do not count."""
        total = 0.0
        for step in self._taken(first, len(self.plan.steps) if last is None else last):
            handles = self._step(step)
            total += self._programs[step.kernel].time(handles, number, 1, 0, False, math.inf)[0] * number
        return total


class KernelByKernel:
    """What a backend without `networks` offers (see `NetworkBackend`)."""

    alignment = ALIGNMENT
    slack = 0

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.device_type = backend.kind
        self.suffix = f".{backend.kind}"

    def accept(self, func: LoweredFunc, target: str) -> None:
        self._backend.source(func, target)

    def store(self) -> None:
        return None

    def code(self, func: LoweredFunc, target: str) -> KernelCode:
        arguments = [[list(b.shape), b.dtype] for b in func.args]
        return KernelCode(func.name, self._backend.source(func, target), (), {"arguments": arguments})

    def recurrence(self, loop: Recurrence, target: str) -> None:
        return None

    def asked(self, target: str) -> None:
        return None

    def compile(self, func: LoweredFunc | None, code: KernelCode, target: str) -> bytes:
        require(func is not None, GraphError, f"kernel {code.name}", "it is built from its program, not from source")
        assert func is not None
        with scratch_folder("kernel") as folder:
            built = Path(folder) / "built"
            built.mkdir()
            self._backend.build(func, target, str(built))
            return _packed(built)

    def link(self, plan: ExecutionPlan, compiled: Mapping[str, bytes]) -> tuple[dict[str, str], dict[str, bytes]]:
        return {}, {name + ARCHIVE: archive for name, archive in compiled.items()}

    def machine(self, target: str) -> dict[str, Any]:
        return {"system": platform.system(), "machine": platform.machine()}

    def check_machine(self, facts: Mapping[str, Any], index: int) -> None:
        here = self.machine("")
        require(dict(facts) == here, GraphError, "network", f"was compiled for {dict(facts)}; build it here", here=here)

    def open(self, network: CompiledNetwork, index: int) -> KernelExecutor:
        return KernelExecutor(self._backend, network, index)
