"""What the verifier costs and what it proves: beside lowering, in a measured trial, and by kind of argument.

python -m benchmarks.verify_cost [--programs 24] [--trials 24] [--networks resnet-18,bert-base] [--json FILE]

lower, verify   median ms over drawn programs, and the median of the ratios; both of the same program, in turns
                (all times are those of the processor, so that other work on the machine counts little; of each the
                least of three)
trials          a program as a worker builds it, without a cache, with the verifier and without, in turns: medians of
                both, of what it adds to a trial, and of its own share; on C the program is run, checked and timed, too
load            the processes that wanted a processor, on average, in the minute before the end
verdicts        of drawn programs: proven by ranges and forms alone, by looking at all points of some accesses as well,
                or refused
"""

from __future__ import annotations

import importlib
import os
import resource
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import ansor
import te_lite as te
from ansor.measure.channel import task_payload
from ansor.measure.jobs import Workbench
from ansor.sketch import generate_sketches
from benchmarks import report
from relay_lite.testing.by_name import NETWORKS, get_workload
from te_lite.computation.tensor import Tensor
from te_lite.lowering.lower import unverified
from te_lite.schedule.state import State
from te_lite.schedule.step import to_json
from te_lite.verify.verify import Proven, verdict
from tests.conv_layer import conv2d_layer
from tests.drawn_programs import drawn_program
from tests.workloads import WORKLOADS, matmul, max_pool, softmax

CASES: dict[str, Callable[[], list[Tensor]]] = {
    "conv2d 7x7x512": lambda: conv2d_layer(1, 7, 7, 512, 512, 3, 1, 1),
    "conv2d 56x56x64": lambda: conv2d_layer(1, 56, 56, 64, 64, 3, 1, 1),
    "conv2d 224x224x3 /2": lambda: conv2d_layer(1, 224, 224, 64, 3, 7, 2, 3),
    "matmul 1024": lambda: matmul(1024, 1024, 1024),
    "softmax 512x1024": lambda: softmax(512, 1024),
    "max pool 112": lambda: max_pool(1, 112, 64),
}
TARGETS = ("c", "cuda")
TRIALS = {"c": "codegen_c.emit", "cuda -arch=sm_90": "codegen_cuda.emission.emit"}
"""Targets, and the module that emits their programs; a device is not needed."""
WITHOUT: Callable[..., None] = lambda *given: None  # noqa: E731


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument("--programs", type=int, default=24)
    p.add_argument("--trials", type=int, default=24)
    p.add_argument("--networks", default="resnet-18,bert-base", help="names, with commas between; none: empty")
    options = p.parse_args()
    report.require_names("network", filter(None, options.networks.split(",")), NETWORKS)
    costs = [cost_row(name, target, options.programs) for name in CASES for target in TARGETS]
    report.table(costs, ["program", "lower ms", "verify ms", "ratio", "worst ratio"])
    trials = [trial_row(target, options.trials) for target in TRIALS]
    report.table(trials, ["trial of", "without ms", "with ms", "added %", "verifier %"])
    shares = [share_row(name, dags, options.programs) for name, dags in dags_by_name(options.networks)]
    report.table(shares, ["programs of", "drawn", "by ranges and forms", "by points too", "refused"])
    report.write_json(options.json, {"cost": costs, "trials": trials, "verdicts": shares, "load": os.getloadavg()[0]})


def drawn(dag: te.ComputeDAG, target: str, count: int) -> Iterator[State]:
    """Programs of all sketches in turns."""
    where, rng = ansor.Target(target), np.random.default_rng(0)
    hardware = ansor.HardwareParams.for_target(where)
    sketches = generate_sketches(dag, where, hardware)
    for k in range(count):
        state = drawn_program(sketches[k % len(sketches)], where, hardware, rng)
        if state is not None:
            yield state


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` gives, and the milliseconds that it kept processors busy, those of compilers included."""
    start = _busy()
    value = work()
    return value, (_busy() - start) * 1e3


def _busy() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def fastest(work: Callable[[], Any]) -> tuple[Any, float]:
    """What `work` gives, and the least time of three."""
    found = [timed(work) for _ in range(3)]
    return found[-1][0], min(spent for _, spent in found)


def cost_row(name: str, target: str, programs: int) -> list[Any]:
    """Medians over programs; the first one warms up."""
    lowers, verifies = [], []
    for state in list(drawn(te.ComputeDAG(CASES[name]()), target, programs + 1)):
        func, lowering = fastest(lambda state=state: unverified(state))  # type: ignore[misc]
        computed = [b for t, b in zip(state.dag.tensors, func.args, strict=True) if isinstance(t.op, te.ComputeOp)]
        _, verifying = fastest(lambda func=func, computed=computed: verdict(func, computed))  # type: ignore[misc]
        lowers.append(lowering)
        verifies.append(verifying)
    ratios = [v / x for v, x in zip(verifies, lowers, strict=True)][1:]
    return [
        f"{name}, {target}", statistics.median(lowers[1:]), statistics.median(verifies[1:]),
        statistics.median(ratios), max(ratios),
    ]  # fmt: skip


def trial_row(target: str, trials: int) -> list[Any]:
    """Medians: ms of a trial of a small convolution without and with the verifier, what that adds, and its share."""
    task = ansor.SearchTask(compute_dag=te.ComputeDAG(CASES["conv2d 7x7x512"]()), target=target)
    lowering: Any = importlib.import_module("te_lite.lowering.lower")
    emitting: Any = importlib.import_module(TRIALS[target])
    verify, own = lowering.verify, 0.0
    seconds: tuple[list[float], list[float]] = ([], [])
    shares: list[float] = []

    def watched(*given: Any) -> None:
        nonlocal own
        own += timed(lambda: verify(*given))[1]

    bench = Workbench()
    with tempfile.TemporaryDirectory() as data:
        if target == "c":
            bench.do({**_job(task), "op": "prepare", "directory": data, "seed": 0, "device": 0})
        for k, state in enumerate(drawn(task.compute_dag, target, trials + 1)):
            for which in (0, 1) if k % 2 else (1, 0):
                lowering.verify = emitting.verify = (WITHOUT, watched)[which]
                own = 0.0
                _, spent = timed(lambda state=state: _trial(bench, task, state, target == "c"))  # type: ignore[misc]
                seconds[which].extend([spent] if k else [])
                shares.extend([own / spent * 100] if k and which else [])
    lowering.verify = emitting.verify = verify
    added = statistics.median(b / a - 1 for a, b in zip(*seconds, strict=True)) * 100
    return [target, *map(statistics.median, seconds), added, statistics.median(shares)]


def _job(task: ansor.SearchTask) -> dict[str, Any]:
    return dict(task_payload(task))


def _trial(bench: Workbench, task: ansor.SearchTask, state: State, runs: bool) -> None:
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryDirectory() as place:
        os.environ["CODEGEN_C_CACHE"], os.environ["CODEGEN_CUDA_CACHE"] = cache, "off"
        job = {**_job(task), "op": "build", "steps": [to_json(s) for s in state.steps], "directory": place}
        built = bench.do(job)
        if not runs:
            return
        bench.do({
            **_job(task), "op": "run", "directory": place, "packed": built["packed"], "number": 1, "repeat": 1,
            "min_repeat_ms": 0, "flush": False,
        })  # fmt: skip


def dags_by_name(networks: str) -> Iterator[tuple[str, list[tuple[str, te.ComputeDAG]]]]:
    """The small workloads of the tests, the layers above, and the tasks of networks: (target, computation)."""
    for target in TARGETS:
        yield f"test workloads, {target}", [(target, te.ComputeDAG(make())) for make in WORKLOADS.values()]
        yield f"layers, {target}", [(target, te.ComputeDAG(make())) for make in CASES.values()]
        for name in filter(None, networks.split(",")):
            module, params = get_workload(name)
            tasks, _ = ansor.extract_tasks(module["main"], params, ansor.Target(target), include_simple_tasks=True)
            yield f"{name}, {target}", [(target, task.compute_dag) for task in tasks]


def share_row(name: str, dags: list[tuple[str, te.ComputeDAG]], programs: int) -> list[Any]:
    """How many programs were drawn, and how many of them had each verdict."""
    kinds: Counter[str] = Counter()
    for target, dag in dags:
        for state in drawn(dag, target, programs):
            found = verdict(unverified(state))
            kinds["refused" if not isinstance(found, Proven) else "points" if found.points else "forms"] += 1
            if not isinstance(found, Proven):
                print(found)
    return [name, sum(kinds.values()), kinds["forms"], kinds["points"], kinds["refused"]]


if __name__ == "__main__":
    report.run(main)
