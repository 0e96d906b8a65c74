"""The one table of what runs networks: target kinds to backends, and devices to target kinds."""

from __future__ import annotations

from te_lite.errors import require

from ..ir.errors import GraphError
from .backends import NetworkBackend
from .c_network import C_NETWORK
from .cuda_network import CUDA_NETWORK

_BACKENDS: dict[str, NetworkBackend] = {"c": C_NETWORK, "cuda": CUDA_NETWORK}


def network_backend(kind: str) -> NetworkBackend:
    """The backend of a target kind.  Raises GraphError for a kind that runs no networks."""
    require(kind in _BACKENDS, GraphError, "target", f"networks run on {', '.join(_BACKENDS)}", kind=kind)
    return _BACKENDS[kind]
