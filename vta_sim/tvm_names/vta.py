"""`vta`: the machine."""

from __future__ import annotations

from collections.abc import Collection

from ansor.cluster import RemoteSession
from ansor.core.errors import BackendError
from relay_lite.transform import PassContext
from te_lite.errors import require

from ..core.environment import Environment, get_env
from . import top
from .rpc import LocalSession

Session = LocalSession | RemoteSession


def build_config(opt_level: int = 3, disabled_pass: Collection[str] = ()) -> PassContext:
    """Settings to build a network under.  The passes for the machine are part of its compiler, so nothing is added."""
    return PassContext(opt_level=opt_level, disabled_pass=disabled_pass)


def reconfig_runtime(remote: Session) -> None:
    """Nothing to do: a simulated machine is made with its configuration.  Raises BackendError for anything else."""
    ok = isinstance(remote, LocalSession | RemoteSession)
    require(ok, BackendError, "vta", "a LocalSession or what request_remote gives is needed", got=remote)


def program_fpga(remote: Session, bitstream: str | None = None) -> None:
    """Nothing to do: a simulated machine needs no hardware image.  Raises BackendError for anything else."""
    reconfig_runtime(remote)


__all__ = ["Environment", "build_config", "get_env", "program_fpga", "reconfig_runtime", "top"]
