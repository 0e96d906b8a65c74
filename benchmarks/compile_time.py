"""How long it takes to compile a whole network without records: with empty stores, and again in a fresh process.

python -m benchmarks.compile_time [--networks resnet-50,bert-base] [--target c] [--json FILE]

wall, cpu       seconds of `relay_lite.build` by the clock, and of the processor (this process and its compilers)
two cores       what it takes on two free cores, at least: all of Python is one thread, beside which compilers run
the others      seconds of the processor by part: importing the packages, graph passes (constants folded), search of
                default programs, lowering, verification, source text, packing of weights, the compilers, the link, and
                putting the network on its device; `rest` is what is left of the build
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import resource
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from benchmarks import report

NETWORKS = "resnet-50,resnet-18,mobilenet,squeezenet_v1.1,inception_v3,densenet-121,bert-base"
STORES = ("CODEGEN_C_CACHE", "CODEGEN_CUDA_CACHE")
MEASURED = (
    ("relay_lite.compiler.build", "optimize", "passes"),
    ("relay_lite.compiler.group_programs", "default_states", "search"),
    ("te_lite.lowering.lower", "verify", "verify"),
    ("te_lite.lowering.lower", "unverified", "lower"),
    ("codegen_c.network", "emit", "emit"),
    ("codegen_cuda.networks.network", "emit", "emit"),
    ("ansor.layout.packing", "PackedLayout.pack", "pack"),
)
"""What is timed: a function where it is called from, and the part that it is."""
PARTS = ("import", "passes", "search", "lower", "verify", "emit", "pack", "rest", "compilers", "link", "load")


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--networks", default=NETWORKS, help="names, with commas between")
    p.add_argument("--target", default="c")
    p.add_argument("--one", metavar="NAME", help="build one network with the stores as they are, print figures as JSON")
    options = p.parse_args()
    if options.one:
        print(json.dumps(built(options.one, options.target)))
        return
    rows: list[dict[str, Any]] = []
    for name in options.networks.split(","):
        rows += both(name, options.target)
        report.write_json(options.json, {"target": options.target, "builds": rows})
    columns = ("wall", "cpu", "two cores", *PARTS)
    report.table(
        [[r["network"], r["build"], r["kernels"], *[r[c] for c in columns]] for r in rows],
        ["network", "build", "kernels", *columns],
    )


def both(name: str, target: str) -> Iterator[dict[str, Any]]:
    """The first build of a network with empty stores, and the second one with what that has left there."""
    with tempfile.TemporaryDirectory() as folder:
        stores = {variable: f"{folder}/{variable.lower()}" for variable in STORES}
        words = ("--one", name, "--target", target)
        for which in ("first", "second"):
            said = report.words_of("benchmarks.compile_time", *words, env={**os.environ, **stores})
            yield {"network": name, "target": target, "build": which, **json.loads(said)}


def cpu() -> tuple[float, float]:
    """Seconds of the processor so far: of this process, and of those it has waited for."""
    own, others = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return own.ru_utime + own.ru_stime, others.ru_utime + others.ru_stime


class Parts:
    """Seconds of this thread by part; what a part calls of another is not its own."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._open: list[str] = ["rest"]
        self._since = time.thread_time()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self._turn()
        self._open.append(name)
        try:
            yield
        finally:
            self._turn()
            self._open.pop()

    def _turn(self) -> None:
        now = time.thread_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def watch(self, module: str, name: str, part: str) -> None:
        """Count what a function does, or what an iterator that it gives does, as `part`."""
        owner: Any = importlib.import_module(module)
        *classes, last = name.split(".")
        for step in classes:
            owner = vars(owner)[step]
        setattr(owner, last, self._watched(vars(owner)[last], part))

    def _watched(self, func: Callable[..., Any], part: str) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self.part(part):
                made = func(*args, **kwargs)
            return self._each(made, part) if isinstance(made, Iterator) else made

        return run

    def _each(self, items: Iterator[Any], part: str) -> Iterator[Any]:
        while True:
            with self.part(part):
                item = next(items, items)
            if item is items:
                return
            yield item


def built(name: str, target: str) -> dict[str, Any]:
    """The figures of one build in this process."""
    logging.disable(logging.WARNING)
    before = cpu()[0]
    relay = importlib.import_module("relay_lite")
    imported = cpu()[0] - before
    network = importlib.import_module("relay_lite.tuning.network").load_network(name)
    parts = Parts()
    for watched in MEASURED:
        parts.watch(*watched)
    link = _watched_link(target)
    start, at = time.perf_counter(), cpu()
    parts.seconds.clear()
    with parts.part("rest"):
        library = relay.build(network.graph, target=target, params=network.params)
    wall, end = time.perf_counter() - start, cpu()
    own, others = end[0] - at[0], end[1] - at[1]
    library["default"]()
    seconds = {**{p: parts.seconds[p] for p in PARTS}, "import": imported, "link": link[0]}
    seconds |= {"compilers": others - link[0], "load": cpu()[0] - end[0]}
    return {
        "kernels": len(library.kernels), "wall": wall, "cpu": own + others, "two cores": max(own, (own + others) / 2),
        **seconds,
    }  # fmt: skip


def _watched_link(target: str) -> list[float]:
    """What the processes of the link take, when it will have been done."""
    taken = [0.0]
    backend = importlib.import_module("relay_lite.runtime.devices").network_backend(target.split()[0])
    link = backend.link

    def run(*args: Any) -> Any:
        before = cpu()[1]
        made = link(*args)
        taken[0] += cpu()[1] - before
        return made

    backend.link = run
    return taken


if __name__ == "__main__":
    report.run(main)
