"""`tvm.relay`: graphs; `build` knows the accelerator, too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import relay_lite
from ansor.core.target.target import Target
from relay_lite import op, quantize, testing, transform
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Function
from relay_lite.runtime.library import NetworkLibrary

from ..network.library import VtaLibrary
from ..network.library import build as build_for_vta


def build(
    mod: IRModule | Function,
    target: Target | str = "vta",
    params: Mapping[str, Any] | None = None,
    target_host: Target | str | None = None,
) -> VtaLibrary | NetworkLibrary:
    """Compile a network for a target.  The processor's part of a network on the accelerator is for this machine,
    whatever `target_host` says.  Raises as `relay_lite.build` and `vta_sim.network.library.build`."""
    if Target.of(target).kind.name == "vta":
        return build_for_vta(mod, params)
    return relay_lite.build(mod, target=target, params=params)


__all__ = ["Function", "IRModule", "build", "op", "quantize", "testing", "transform"]
