"""The two sides of a row of `benchmarks.operators`: each compared with the result in float64, then timed in turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

import ansor
from ansor.cli.compare import timed_in_turns
from ansor.core.device.nd import aligned_copy
from ansor.measure.check import poison
from benchmarks import pytorch
from benchmarks.operator_rows import Library
from codegen_cuda.driver.compile import compile_source
from codegen_cuda.driver.device import DeviceProgram
from codegen_cuda.driver.module import Pointer, open_device
from codegen_cuda.networks.cuda_graph import LaunchGraph
from codegen_cuda.program.facts import program_facts
from te_lite import Tensor

ROUNDS = {"cuda": 25, "c": 7}
MODES = ("eager", "compile")
SLICE = 0.3
TOLERANCES = {"": 1e-4, "fp32x3": 1e-4, "tf32": 2e-3, "fp16": 2e-3, "bf16": 1e-2, "int8": 0.0, "fp8": 1e-2}
"""How far a result may be from that in float64, by the arithmetic of a row: where it is of float32, where factors or
results are rounded to 10 or 7 bits, of integers, and where sums of 14 bits are rounded to 7."""
BYTE = 127
SEED = 0


def random_tensors(torch: Any, tensors: Sequence[Tensor], device: str) -> list[Any]:
    """Inputs, uniform in [-1, 1], or of all integers of a byte but the least."""
    generator = torch.Generator(device).manual_seed(SEED)
    drawn = [torch.rand(t.shape, generator=generator, device=device) * 2 - 1 for t in tensors]
    scaled = [x * BYTE if t.dtype == "int8" else x for x, t in zip(drawn, tensors, strict=True)]
    return [x.round().to(torch.int8) if t.dtype == "int8" else x.to(getattr(torch, t.dtype))
            for x, t in zip(scaled, tensors, strict=True)]  # fmt: skip


def spoilt(torch: Any, tensor: Tensor, device: str) -> Any:
    """An output with nothing in it that a program can have put there."""
    bits = tensor.dtype if tensor.dtype != "bfloat16" else "uint16"
    array = aligned_copy(poison(tensor.shape, tensor.dtype).view(bits))
    return torch.from_numpy(array).view(getattr(torch, tensor.dtype)).to(device)


def relative_error(torch: Any, got: Any, want: Any) -> float:
    """The norm of the difference relative to that of `want`; infinite for NaN."""
    norm, want = torch.linalg.vector_norm, want.double()
    error = float(norm(got.double() - want) / norm(want))
    return error if np.isfinite(error) else float("inf")


@dataclass
class Sides:
    """What is timed, by name, and how far each result is from that in float64."""

    torch: Any
    want: Any
    tolerance: float
    runs: dict[str, Callable[[], Any]] = field(default_factory=dict)
    recorders: dict[str, pytorch.Recorder] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def checked(self, name: str, result: Any) -> None:
        self.errors[name] = relative_error(self.torch, result, self.want)
        right = self.errors[name] <= self.tolerance
        assert right, f"{name}: the result differs from that in float64 by {self.errors[name]:.1e}"

    def add_library(self, library: Library, inputs: Sequence[Any], modes: Sequence[str] = MODES) -> None:
        """PyTorch's operator, eager and compiled, in each memory format; a variant that is not compiled is left out.

        On the CPU NumPy's is a variant, too, where it has the operator.
        """
        self.torch.compiler.reset()
        stored = pytorch.in_formats(self.torch, library.enter(*inputs))
        for mode, (layout, tensors) in product(modes, stored.items()):
            name = f"{mode} {layout}".strip()
            call = library.call if mode == "eager" else self.torch.compile(library.call, dynamic=False)
            run = partial(call, *tensors)
            try:
                result = run()
            except Exception as error:  # the compiler raises what it likes
                if mode == "eager":
                    raise
                self.refused[name] = f"{type(error).__name__}: {error}".splitlines()[0]
                continue
            self.checked(name, library.leave(result))
            self.runs[name] = run
            self.recorders[name] = partial(recorded, self.torch, run)
        if library.numpy is not None and self.want.device.type == "cpu":
            run = partial(library.numpy, *[x.numpy() for x in inputs])
            self.checked("numpy", self.torch.from_numpy(run()))
            self.runs["numpy"] = run

    def add_ours(self, task: ansor.SearchTask, log: Path, inputs: Sequence[Any]) -> None:
        """The best program of the log."""
        tensors = task.compute_dag.tensors
        module = ansor.build(task.best_state(log), tensors, task.target)
        arrays = [*inputs, spoilt(self.torch, tensors[-1], self.want.device)]
        if task.target.is_gpu:
            self.recorders["ours"] = partial(our_graph, module, arrays)
            our_graph(module, arrays, 1)()
            self.torch.cuda.synchronize()
        else:
            self.runs["ours"] = partial(module, *[a.numpy() for a in arrays])
            self.runs["ours"]()
        self.checked("ours", arrays[-1])

    def seconds(self, target: str) -> dict[str, list[float]]:
        """Seconds a call, in turns."""
        if target == "cuda":
            return pytorch.graphs_in_turns(self.torch, self.recorders, ROUNDS[target])
        return timed_in_turns(self.runs, ROUNDS[target], SLICE)


def recorded(torch: Any, run: Callable[[], Any], calls: int) -> Callable[[], Any]:
    return pytorch.captured(torch, run, calls)[0]


@dataclass(frozen=True)
class Replay:
    """A graph, and what must live as long."""

    graph: LaunchGraph
    held: tuple[Any, ...]

    def __call__(self) -> None:
        self.graph.launch()


def our_graph(module: Any, tensors: Sequence[Any], calls: int) -> Replay:
    """Calls of a CUDA program on tensors of this device, recorded back to back."""
    device = open_device()
    cubin = compile_source(module.source, device.arch).cubin
    program = DeviceProgram(device, [cubin], program_facts(module.program))
    launches = program.launches([Pointer(t.data_ptr()) for t in tensors])

    def record(stream: Any) -> None:
        for _ in range(calls):
            program.launch(launches, stream)

    return Replay(LaunchGraph(device.cuda, record), (program, tensors))
