"""The backend of a target, as what it promises to be."""

from __future__ import annotations

from . import registry
from .protocols import Backend


def load_backend(module: str, kind: str) -> Backend:
    """The `BACKEND` of a module.  Raises BackendError when the module is missing."""
    found: Backend = registry.load_backend(module, kind)
    return found


def backend(kind: str) -> Backend:
    """The backend of a target kind.  Raises BackendError, in one sentence, when it cannot be had."""
    return load_backend(registry.backend_module(kind), kind)
