"""A network built for the accelerator: the packed graph, and what each of its kernels is compiled from.

    with apply_history_best("vta.log"):
        lib = build(graph, params)
    lib.export_library("graphlib.tar")
    module = load_library("graphlib.tar").on()          a VtaModule

A kernel is compiled from the steps of a program of its sketches, where the contexts of records know one when the
library is built (`with ApplyHistoryBest(log)` or `Drafts()`), else from the configuration of its convolution.  The file
is a tar of JSON and arrays; programs are compiled from it where they run.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ansor.autotvm.config import ConfigEntity
from ansor.autotvm.dispatch import DispatchContext
from ansor.autotvm.fallback import FallbackConfigEntity
from ansor.core.device.nd import DeviceId
from ansor.core.target.target import Target
from ansor.records.dispatch import DispatchContext as SketchPrograms
from relay_lite.ir.errors import GraphError
from relay_lite.ir.module import IRModule, bind_params, main_function
from relay_lite.ir.nodes import Array, Function
from relay_lite.ir.param_dict import read_arrays
from te_lite import ComputeDAG, State
from te_lite.errors import TeError, require
from te_lite.schedule.replay import replay
from te_lite.schedule.step import Step, from_json, to_json

from ..core.config import Config, config_from_json
from ..graph.extract import conv_workloads
from ..graph.machine_kernel import MachineKernel, Workload
from ..graph.split import split
from ..graph.tensors import kernel_tensors
from .executor import VtaModule
from .graph_file import graph_from_json, graph_to_json

GRAPH, CONSTANTS = "graph.json", "constants.npz"
MOST_CHARACTERS = 1000


@dataclass(frozen=True, eq=False)
class VtaLibrary:
    """`graph` is packed; `configs` are the configurations of its convolutions, those without one get default tiles.

    `programs` are steps by workload key, which go first; `chained` says that kernels which follow each other are one
    launch.
    """

    graph: Function
    configs: Mapping[Workload, ConfigEntity]
    config: Config
    programs: Mapping[str, tuple[Step, ...]] = field(default_factory=dict)
    chained: bool = False

    def __getitem__(self, name: str) -> Callable[..., VtaModule]:
        """`lib["default"](device)` is the network, ready to run.  Raises GraphError for other names."""
        require(name == "default", GraphError, "network", "its only module is 'default'", name=name)
        return self.on

    def on(self, device: DeviceId | None = None) -> VtaModule:
        """The network on a simulated machine of its own, all kernels compiled; `device` is not looked at.

        Raises CompileError when no tiles of a kernel fit the machine, ScheduleError for a program of another kernel.
        """
        module = VtaModule(self.graph, self.config, chained=self.chained)
        with _Chosen(self.configs), _Programs(self.programs):
            for kernel in module.network.plan.kernels:
                module.kernels.module(kernel)
        return module

    def export_library(self, path: str | os.PathLike[str]) -> None:
        """Write the library to a file, to be read by `load_library`.  Raises GraphError when it cannot be written."""
        graph, constants = graph_to_json(self.graph)
        records = [[workload, entity.to_json_dict()] for workload, entity in self.configs.items()]
        programs = {key: [to_json(step) for step in steps] for key, steps in self.programs.items()}
        facts = {
            "machine": self.config.to_json(), "graph": graph, "configs": records, "programs": programs,
            "chained": self.chained,
        }  # fmt: skip
        arrays = io.BytesIO()
        np.savez(arrays, *constants, allow_pickle=False)
        try:
            with tarfile.open(path, "w") as tar:
                _add(tar, GRAPH, json.dumps(facts).encode())
                _add(tar, CONSTANTS, arrays.getvalue())
        except OSError as error:
            raise GraphError(f"export to {os.fspath(path)}: it cannot be written, {error.strerror}") from error


class _Chosen(DispatchContext):
    """What a library says, and the fallback for what it does not know."""

    def __init__(self, configs: Mapping[Workload, ConfigEntity]) -> None:
        self._configs = configs

    def _query_inside(self, target: str | None, workload: tuple[Any, ...]) -> Any:
        return self._configs.get(workload, FallbackConfigEntity())


class _Programs(SketchPrograms):
    """What a library says of programs of sketches."""

    def __init__(self, programs: Mapping[str, tuple[Step, ...]]) -> None:
        self._programs = programs

    def _query_inside(self, target: Target, workload_key: str, dag: ComputeDAG | None) -> State | None:
        steps = self._programs.get(workload_key)
        return None if steps is None or dag is None else replay(dag, steps)


def build(
    graph: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    config: Config | None = None,
    chained: bool = False,
) -> VtaLibrary:
    """The library of a packed network with the programs and configurations of the current dispatch contexts.

    `params` become constants where the graph has such inputs left; kernels that follow each other are one launch if
    they are `chained`.  Raises GraphError for a network that cannot be
    divided between machine and processor.
    """
    function = main_function(graph)
    names = {v.name for v in function.params}
    function = bind_params(function, {name: value for name, value in (params or {}).items() if name in names})
    machine, kernels = config or Config(), list(split(function).kernels)
    found = {w: DispatchContext.current.query(machine.target_text, w) for w in conv_workloads(function)}
    configs = {w: entity for w, entity in found.items() if entity is not None and not entity.is_fallback}
    return VtaLibrary(function, configs, machine, _known_programs(kernels, machine), chained)


def _known_programs(kernels: Sequence[MachineKernel], machine: Config) -> dict[str, tuple[Step, ...]]:
    """The programs that the contexts of records know, by workload key."""
    found = {}
    for kernel in kernels:
        dag = ComputeDAG(kernel_tensors(kernel))
        known = SketchPrograms.current.query(f"vta -model={machine.model}", dag.workload_key(), dag=dag)
        if known is not None:
            found[dag.workload_key()] = tuple(known.steps)
    return found


def load_library(path: str | os.PathLike[str]) -> VtaLibrary:
    """The library that `export_library` wrote; reading it runs no code.

    Raises GraphError, in one sentence, for a file that is missing, cut, or no library.
    """
    subject = f"library {os.fspath(path)}"
    try:
        with tarfile.open(path, "r:") as tar:
            facts = json.loads(_member(tar, GRAPH))
            arrays = read_arrays(io.BytesIO(_member(tar, CONSTANTS)))
        constants: list[Array] = [arrays[f"arr_{k}"] for k in range(len(arrays))]
        records = [(_tuples(workload), ConfigEntity.from_json_dict(entity)) for workload, entity in facts["configs"]]
        machine, graph = config_from_json(facts["machine"], subject), facts["graph"]
        function, configs = graph_from_json(graph, constants, subject), dict(records)
        programs = {str(key): tuple(map(from_json, steps)) for key, steps in facts.get("programs", {}).items()}
        chained = bool(facts.get("chained", False))
        law = "kernels are no longer left to the processor, build it again"
        require(not facts.get("left"), GraphError, "left", law, got=facts.get("left"))
    except (OSError, tarfile.TarError, KeyError, TypeError, ValueError, EOFError, RecursionError, TeError) as error:
        reason = " ".join(str(error).split())
        raise GraphError(f"{subject}: no network can be read from it ({reason[:MOST_CHARACTERS]})") from error
    return VtaLibrary(function, configs, machine, programs, chained)


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def _member(tar: tarfile.TarFile, name: str) -> bytes:
    """A plain file of a tar; one that is sparse would be longer than the tar."""
    entry = tar.getmember(name)
    file = tar.extractfile(entry)
    if file is None or not entry.isreg() or entry.issparse():
        raise KeyError(name)
    return file.read()


def _tuples(value: Any) -> Any:
    return tuple([_tuples(v) for v in value]) if isinstance(value, list) else value
