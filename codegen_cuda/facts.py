"""What a launch needs to know of a program, as JSON beside its cubin."""

from __future__ import annotations

from typing import Any

from te_lite.c_text import BYTES

from .cuda_program import CudaKernel, CudaProgram


def program_facts(program: CudaProgram) -> dict[str, Any]:
    """What a launch needs to know, as JSON."""
    return {
        "arguments": len(program.args),
        "scratch_bytes": [b.size * BYTES[b.dtype] for b in program.scratch],
        "kernels": [_kernel_facts(k) for k in program.kernels],
    }


def _kernel_facts(k: CudaKernel) -> dict[str, Any]:
    return {
        "name": k.name,
        "grid": list(k.grid),
        "block": list(k.block),
        "arguments": list(k.arguments),
        "dynamic_bytes": k.dynamic_bytes,
    }
