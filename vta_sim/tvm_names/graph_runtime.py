"""`tvm.contrib.graph_runtime`: a network that runs, `graph_runtime.GraphModule` of what `lib["default"]` gives."""

from __future__ import annotations

from typing import Any

from ansor.cluster.session import RemoteNetwork
from relay_lite.ir.errors import GraphError
from te_lite.errors import require

from ..network.executor import VtaModule


class GraphModule:
    """`module` is the network itself, which times itself: `module.time_evaluator("run", ctx, number=1, repeat=10)`."""

    def __init__(self, module: VtaModule | RemoteNetwork) -> None:
        ok = isinstance(module, VtaModule | RemoteNetwork)
        require(ok, GraphError, "GraphModule", "is made from lib['default'](ctx)", got=type(module).__name__)
        self.module = module

    def set_input(self, key: str | None = None, value: Any = None, **inputs: Any) -> None:
        """As `VtaModule.set_input`."""
        self.module.set_input(key, value, **inputs)

    def run(self, **inputs: Any) -> None:
        """As `VtaModule.run`."""
        self.module.run(**inputs)

    def get_output(self, index: int = 0) -> Any:
        """As `VtaModule.get_output`."""
        return self.module.get_output(index)
