"""The backend of a target, as what it promises to be."""

from __future__ import annotations

from te_lite.errors import require

from ..errors import BackendError
from ..target import registry
from ..target.target import Target
from .backend import Backend


def load_backend(module: str, kind: str) -> Backend:
    """The `BACKEND` of a module.  Raises BackendError when the module is missing, or its object is no `Backend`."""
    found = registry.load_backend(module, kind)
    law = f"the BACKEND of {module} must be of a class derived from ansor.core.device.backend.Backend"
    require(isinstance(found, Backend), BackendError, f"target {kind!r}", law, got=type(found).__name__)
    made: Backend = found
    return made


def backend(kind: str) -> Backend:
    """The backend of a target kind.  Raises BackendError, in one sentence, when it cannot be had."""
    return load_backend(registry.backend_module(kind), kind)


def on_device(target: Target) -> Target:
    """A target with what its first device is, see `Backend.described`.  Raises the backend's error without one."""
    return Target(backend(target.kind.name).described(target.text))
