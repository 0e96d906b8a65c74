"""From a float32 network to one whose convolutions run on integers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, overload

from ..ir.module import IRModule, bind_params
from ..ir.nodes import Function
from ..transform import CanonicalizeOps, FoldConstant, FoldScaleAxis, PassContext, Sequential, SimplifyInference
from .config import QConfig
from .realize import realize


@overload
def quantize(mod: IRModule, params: Mapping[str, Any] | None = None) -> IRModule: ...
@overload
def quantize(mod: Function, params: Mapping[str, Any] | None = None) -> Function: ...
def quantize(mod: IRModule | Function, params: Mapping[str, Any] | None = None) -> IRModule | Function:
    """The network with int8 convolutions, as the current `qconfig` says; `params` (names to arrays) become constants.

    Batch norms are folded into weights first, whatever the level of the current PassContext.  Inputs and results stay
    float32: the first convolutions and everything from the global pool on is not quantised.
    Raises GraphError for parameters that do not fit, a weight without a value, or scales too far apart.
    """
    if isinstance(mod, IRModule):
        return IRModule({**mod.functions, "main": quantize(mod["main"], params)})
    passes = [SimplifyInference(), FoldConstant(), FoldScaleAxis(), CanonicalizeOps(), FoldConstant()]
    with replace(PassContext.current(), opt_level=3):
        function = Sequential(passes)(bind_params(mod, params or {}))
    return FoldConstant()(realize(function, QConfig.current()))
