"""Runs with steps that are taken again: parts, each a recording, between which the host reads what decides that."""

from __future__ import annotations

from collections.abc import Callable

from ansor.core.device.network_plan import ExecutionPlan

from .cuda_graph import LaunchGraph


class Recording:
    """A run of a plan on some memory.

    `record` records steps that follow each other; `taken` waits for a stream and says whether a step that goes back
    does.  Kernels are counted in the order of the plan.
    """

    def __init__(
        self, plan: ExecutionPlan, record: Callable[[range], LaunchGraph], taken: Callable[[int, int | None], bool]
    ) -> None:
        back = {k: k - step.back for k, step in enumerate(plan.steps) if step.back}
        starts = sorted({0, *back.values(), *[k + 1 for k in back if k + 1 < len(plan.steps)]})
        self._parts = [range(a, b) for a, b in zip(starts, [*starts[1:], len(plan.steps)], strict=True)]
        self._graphs = [record(part[:-1] if part[-1] in back else part) for part in self._parts]
        self._back = [starts.index(back[part[-1]]) if part[-1] in back else None for part in self._parts]
        self._kernels = [(graph, k) for graph in self._graphs for k in range(len(graph.kernels))]
        self._taken = taken

    def launch(self, stream: int | None = None) -> None:
        """Queue it on a stream, see `LaunchGraph.launch`; a run with steps that go back ends with the last of these."""
        part = 0
        while part < len(self._parts):
            self._graphs[part].launch(stream)
            back, end = self._back[part], self._parts[part][-1]
            part = part + 1 if back is None or not self._taken(end, stream) else back

    def exchange(self, kernel: int, values: list[int | bytes]) -> None:
        """As of `LaunchGraph`."""
        graph, own = self._kernels[kernel]
        graph.exchange(own, values)
