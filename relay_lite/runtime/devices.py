"""What runs the networks of a target kind: its backend's own way (`Backend.networks`), or kernel by kernel."""

from __future__ import annotations

from ansor.core.device.backend import backend
from ansor.core.device.network_backend import NetworkBackend
from ansor.core.target.registry import has_programs, program_kinds
from te_lite.errors import require

from ..ir.errors import GraphError
from .kernel_by_kernel import KernelByKernel


def network_backend(kind: str) -> NetworkBackend:
    """The networks of a target kind.

    Raises GraphError for a kind that has no programs, BackendError when its package is missing.
    """
    law = f"networks run on {', '.join(program_kinds())}"
    require(has_programs(kind), GraphError, "target", law, kind=kind)
    found = backend(kind)
    made: NetworkBackend = found.networks or KernelByKernel(found)
    return made


def passes_over(kind: str) -> bool:
    """Whether executors of a kind of target pass over the kernels of a way that is not taken.  Raises as above."""
    return kind == "c" or isinstance(network_backend(kind), KernelByKernel)
