"""Whole int8 networks on VTA, by templates and by sketches: milliseconds of the machine and of the processor beside it.

    python -m benchmarks.vta_networks [--networks resnet-18 mobilenet] [--size 224] [--json FILE]

ResNet-18 is the same network on integers in every row, and each row must give the bits of its reference in NumPy:
first as the tutorial divides it, with the best configurations of the template's space (`benchmarks.vta_exhaustive`)
and with the sketches' programs of the fewest cycles; then with additions done by convolutions; with kernels that
follow each other in one launch; and with all on the machine that it has programs of.  Criterion: the last row takes 5 %
less than the first, of the machine and the processor together.  MobileNet-V1 has no templates.  `cpu_s` are seconds of
this processor for finding the programs of a row.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from ansor.autotvm import FallbackContext
from ansor.autotvm.config import ConfigEntity
from ansor.autotvm.dispatch import DispatchContext
from ansor.autotvm.fallback import FallbackConfigEntity
from benchmarks import report
from benchmarks.vta_exhaustive import TIMES, layer_task, read_times
from benchmarks.vta_processor import processor_ms
from relay_lite import reference
from relay_lite.ir import Function
from tests.vta_sim.conv import LAYERS
from vta_sim.cli.whole_network import quantized_network
from vta_sim.graph import graph_pack
from vta_sim.graph.machine_kernel import Workload
from vta_sim.graph.pack import FUSED_ADDITIONS
from vta_sim.graph.pack_whole import pack_whole
from vta_sim.graph.packed_layout import Blocks
from vta_sim.network.executor import VtaModule
from vta_sim.network.vta_network import reference_cpu
from vta_sim.sketch.draft import Drafts

CRITERION = 0.95
HEADER = ["network", "how", "machine ms", "launches", "processor ms", "both ms", "equal", "cpu_s"]


class Optima(DispatchContext):
    """The best configuration of the template for each of the ten convolutions."""

    def __init__(self) -> None:
        self._best: dict[Workload, ConfigEntity] = {}
        for name, times in read_times(TIMES).items():
            task = layer_task(LAYERS[name])
            self._best[task.workload] = task.config_space.get(min(times, key=times.__getitem__))

    def _query_inside(self, target: str | None, workload: tuple[Any, ...]) -> Any:
        return self._best.get(workload, FallbackConfigEntity())


def row(name: str, how: str, graph: Function, image: Any, want: Any, chained: bool) -> dict[str, Any]:
    """A network run one way, with the programs of the contexts that are entered."""
    began = time.process_time()
    module = VtaModule(graph, chained=chained)
    module.network.cpu = reference_cpu
    module.run(data=image)
    equal = np.array_equal(module.get_output().numpy(), want)
    machine, processor = module.vta_seconds() * 1e3, processor_ms(module.network.plan)
    launches = len(module.chains.launches) + len(module.kernels.launches)
    return {
        "network": name, "how": how, "machine_ms": machine, "launches": launches, "processor_ms": processor,
        "both_ms": machine + processor, "equal": equal, "cpu_s": round(time.process_time() - began, 1),
    }  # fmt: skip


def rows_of(name: str, size: int) -> list[dict[str, Any]]:
    """The rows of a network."""
    network = quantized_network(name, 1, size, 0)
    image = np.random.default_rng(0).standard_normal((1, 3, size, size)).astype("float32")
    want, rows = reference.run(network, {"data": image}), []

    def add(how: str, graph: Function, chained: bool = False) -> None:
        rows.append(row(name, how, graph, image, want, chained))
        print(f"{name}, {how}: {rows[-1]['both_ms']:.2f} ms", flush=True)

    with ExitStack() as stack:
        if name == "resnet-18":
            part = graph_pack(network, 1, 16, 8, stop_name="sum", device_annot=True)
            fused = Function(part.params, part.body, {**part.attrs, FUSED_ADDITIONS: True})
            with FallbackContext(), Optima():
                add("templates", part)
            stack.enter_context(Drafts())
            add("sketches", part)
            add("sketches, additions in convolutions", fused)
            add("sketches, additions, one launch", fused, chained=True)
        else:
            stack.enter_context(Drafts())
        add("sketches, all on the machine", pack_whole(network, Blocks(1, 16)), chained=True)
    return rows


def held(rows: list[Mapping[str, Any]]) -> bool:
    """Whether every row is right, and the criterion holds where there are templates."""
    resnet = [r["both_ms"] for r in rows if r["network"] == "resnet-18"]
    return all(r["equal"] for r in rows) and (not resnet or resnet[-1] <= CRITERION * resnet[0])


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--networks", nargs="+", default=["resnet-18", "mobilenet"], choices=["resnet-18", "mobilenet"])
    p.add_argument("--size", type=int, default=224)
    args = p.parse_args()
    rows: list[Mapping[str, Any]] = []
    for name in args.networks:
        rows += rows_of(name, args.size)
    report.table([list(r.values()) for r in rows], HEADER)
    print(f"every row right, and 5 % less than templates in all: {'yes' if held(rows) else 'NO'}")
    words = " ".join(args.networks)
    command = f"python -m benchmarks.vta_networks --networks {words} --size {args.size}"
    report.write_json(args.json, {"command": command, "rows": rows})


if __name__ == "__main__":
    report.run(main)
