"""Who does what of a network, decided kernel by kernel from cycles, and said in a table.

    found = compared(plan.kernels, DeviceKernels(device))
    left = {c.kernel for c in found if c.left}
    print(table(split(graph, left), found))

What a kernel takes on the machine is counted without the launch, which a chain of kernels has once; so leaving one to
the processor cuts a chain in two, and has to be worth a launch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from relay_lite.ir.nodes import Call
from relay_lite.ir.visit import post_order

from ..graph.machine_kernel import MachineKernel
from ..graph.processor import ARM, Processor
from ..graph.split import CpuStep, NetworkPlan, VtaStep
from ..sim import PYNQ, CycleModel
from .device_kernels import DeviceKernels

ALU_OF_A_TAP = 3
"""What the ALU does for a tap of a depthwise convolution: it copies inputs, multiplies, and adds."""


@dataclass(frozen=True)
class Compared:
    """Milliseconds of a kernel on the machine and, by its model, on the processor; and of a launch.

    `ms_alu` is what the taps alone would take on the machine's ALU, of a convolution in groups; None of other kernels,
    which the ALU cannot do.
    """

    kernel: MachineKernel
    ms_machine: float
    ms_processor: float
    ms_launch: float
    ms_alu: float | None

    @property
    def left(self) -> bool:
        """Whether the processor is faster by more than a launch."""
        return self.ms_processor + self.ms_launch < self.ms_machine


def compared(
    kernels: Iterable[MachineKernel], programs: DeviceKernels, model: CycleModel = PYNQ, processor: Processor = ARM
) -> list[Compared]:
    """Both times of each kernel, with the programs of the current contexts of records.  Raises CompileError."""
    out, launch = [], model.launch / (model.mhz * 1e3)
    for kernel in kernels:
        machine = cycles_of(kernel, programs, model) / (model.mhz * 1e3) - launch
        beside = processor.ms(processor.kernel_cycles(kernel))
        out.append(Compared(kernel, machine, beside, launch, _alu(kernel, model)))
    return out


def cycles_of(kernel: MachineKernel, programs: DeviceKernels, model: CycleModel = PYNQ) -> float:
    """Cycles of a kernel by itself, the launch counted; nothing is computed."""
    return programs.module(kernel).launch_without_data().timing(model).cycles


def _alu(kernel: MachineKernel, model: CycleModel) -> float | None:
    if not kernel.grouped:
        return None
    elements = math.prod(kernel.output.shape[:4]) * math.prod(kernel.inputs[1].shape[1:3])
    return elements * (ALU_OF_A_TAP * model.alu_iteration + model.gemm_iteration) / (model.mhz * 1e3)


def described(kernel: MachineKernel) -> str:
    """Sizes of a kernel: rows x columns x channels, and what a convolution makes of them."""
    _, blocks, h, w, _, block = kernel.inputs[0].shape
    size = f"{h}x{w}x{blocks * block}"
    if kernel.workload is None:
        return f"{size}, {len(kernel.operations)} operations"
    if kernel.windows:
        _, _, kind, (kh, kw), (stride, _), _ = kernel.workload
        return f"{size}, {kind} of {kh}x{kw}/{stride}, {len(kernel.operations)} operations"
    weight = kernel.inputs[1].shape
    kh, kw = weight[1:3] if kernel.grouped else weight[2:4]
    to = "in groups" if kernel.grouped else f"-> {weight[0] * block}"
    image = ", + image" if kernel.extras[-1:] == (kernel.output,) else ""
    return f"{size} {to}, {kh}x{kw}/{kernel.workload[3][0]}, {len(kernel.operations)} operations{image}"


def table(plan: NetworkPlan, found: Sequence[Compared], processor: Processor = ARM) -> str:
    """Each step: where it runs, and why."""
    by_kernel = {c.kernel: c for c in found}
    lines = [f"{'step':<52}{'machine ms':>11}{'processor ms':>13}  where it runs, and why"]
    for step in plan.steps:
        if isinstance(step, VtaStep):
            lines.append(_kernel_row(by_kernel[step.kernel]))
        else:
            lines.append(f"{_operators(step):<52}{'':>11}{_ms(step, processor):>13.3f}  processor: no kernel")
    lines += [f"{described(c.kernel):<52}{c.ms_machine:>11.3f}{c.ms_processor:>13.3f}  processor: faster, a part of the"
              " steps above" for c in found if c.left]  # fmt: skip
    return "\n".join(lines)


def _kernel_row(c: Compared) -> str:
    why = "machine: faster" if c.ms_machine <= c.ms_processor else "machine: saves a launch"
    if c.ms_alu is not None:
        why += f", by GEMM; its taps by ALU {c.ms_alu:.3f} ms"
    return f"{described(c.kernel):<52}{c.ms_machine:>11.3f}{c.ms_processor:>13.3f}  {why}"


def _operators(step: CpuStep) -> str:
    names = [n.op.name.removeprefix("nn.") for n in post_order(step.function.body) if isinstance(n, Call)]
    text = ", ".join(dict.fromkeys(names))
    return text if len(text) <= 50 else f"{text[:47]}..."


def _ms(step: CpuStep, processor: Processor) -> float:
    return processor.ms(processor.function_cycles(step.function))


def processor_ms(plan: NetworkPlan, processor: Processor = ARM) -> float:
    """What a network leaves to the processor, by its model."""
    return math.fsum(_ms(step, processor) for step in plan.steps if isinstance(step, CpuStep))
