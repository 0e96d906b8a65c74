"""The search: `python -m mini_ansor matmul 512` derives, draws, evolves, measures and records programs."""

import argparse
import json
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import partial, reduce
from inspect import signature
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import xgboost

from .c import Measurer, Result, c_text
from .expr import MEANING, Axis, Call, Const, Expr, Load, Op, Reduce, binary, children
from .features import features
from .lower import lower
from .population import Genes, Scored, evolve, random_genes
from .program import ANNOTATIONS, Machine, State, Step, StepError, ordered
from .sketch import generate_sketches
from .steps import STEPS

PER_ROUND, DRAWN, AT_RANDOM, KEPT = 16, 64, 0.1, 16
"""Programs measured in a round, drawn at random in it, the share measured at random, the best ones evolved further."""


def placeholder(shape: Sequence[int], name: str, dtype: str = "float32") -> Op:
    """An input."""
    return Op(name, tuple(Axis(f"i{d}", n) for d, n in enumerate(shape)), None, dtype, name)


def compute(shape: Sequence[int], f: Callable[..., Expr], name: str) -> Op:
    """The tensor whose point `(i, j, ...)` is `f(i, j, ...)`; the axes are named after the arguments of `f`."""
    axes = tuple(Axis(name, n) for name, n in zip(f.__code__.co_varnames, shape, strict=False))
    body = f(*axes)
    return Op(name, axes, body, body.dtype, name)


def matmul(n: int, m: int, k: int) -> list[Op]:
    """A [N, K] times B [K, M]."""
    a, b, r = placeholder((n, k), "A"), placeholder((k, m), "B"), Axis("k", k)
    return [a, b, compute((n, m), lambda i, j: Reduce("sum", a[i, r] * b[r, j], (r,)), "C")]


def conv2d(n: int, h: int, w: int, co: int, ci: int, k: int, stride: int, pad: int) -> list[Op]:
    """The layer of TVM's tutorial: relu(conv2d(data, kernel) + bias), data [N, CI, H, W], kernel [CO, CI, K, K]."""
    data, kernel = placeholder((n, ci, h, w), "data"), placeholder((co, ci, k, k), "kernel")
    bias = placeholder((1, co, 1, 1), "bias")

    def padded(i0: Expr, i1: Expr, i2: Expr, i3: Expr) -> Expr:
        inside = reduce(partial(binary, "&&"), [i2 >= pad, i2 < h + pad, i3 >= pad, i3 < w + pad])
        return Call("select", (inside, data[i0, i1, i2 - pad, i3 - pad], Const(0, "float32")))

    image = compute((n, ci, h + 2 * pad, w + 2 * pad), padded, "pad_temp") if pad else data
    rc, ry, rx = Axis("rc", ci), Axis("ry", k), Axis("rx", k)

    def window(nn: Expr, ff: Expr, yy: Expr, xx: Expr) -> Expr:
        return Reduce("sum", image[nn, rc, yy * stride + ry, xx * stride + rx] * kernel[ff, rc, ry, rx], (rc, ry, rx))

    shape = (n, co, (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1)
    conv = compute(shape, window, "conv2d_nchw")
    added = compute(shape, lambda ax0, ax1, ax2, ax3: conv[ax0, ax1, ax2, ax3] + bias[0, ax1, 0, 0], "T_add")
    relu = compute(shape, lambda i0, i1, i2, i3: binary("max", added[i0, i1, i2, i3], 0), "relu")
    return [data, kernel, bias, relu]


@dataclass(frozen=True)
class Workload:
    """`make` gives the tensors for some numbers; `key` is what the engine calls it with the same numbers."""

    make: Callable[..., list[Op]]
    default: tuple[int, ...]
    key: Callable[..., list[object]]


WORKLOADS = {
    "matmul": Workload(matmul, (512, 512, 512), lambda *shape: ["matmul", *shape]),
    "conv2d": Workload(
        conv2d, (1, 7, 7, 512, 512, 3, 1, 1), lambda *n: ["conv2d_layer", *n[:6], n[5], [n[6]] * 2, [n[7]] * 2]
    ),
}


def total_flops(args: Sequence[Op]) -> int:
    """Floating-point operations of a computation; index arithmetic does not count."""
    return sum(prod(op.shape) * flops(op.body, op.dtype) for op in ordered(args) if op.body is not None)


def flops(e: Expr, output: str) -> int:
    """Operations on numbers of the type of the `output`; those on others are index arithmetic."""
    match e:
        case Reduce(_, source, axes):
            return prod(a.extent for a in axes) * (1 + flops(source, output))
        case Call("select", (cond, a, b)):
            return flops(cond, output) + max(flops(a, output), flops(b, output))
        case Load():
            return 0
    counted = isinstance(e, Call) and e.op in MEANING and output in [a.dtype for a in e.args]
    return counted + sum(flops(part, output) for part in children(e))


def step_to_json(step: Step) -> list[Any]:
    """The list that stands for a step in a record."""
    values = [list(v) if isinstance(v, tuple) else v for v in step.args]
    return [step.tag, *[ANNOTATIONS.index(v) if v in ANNOTATIONS else v for v in values]]


def step_from_json(data: list[Any]) -> Step:
    """The step that a list stands for.  Raises StepError for one that is none."""
    function = STEPS.get(data[0]) if isinstance(data, list) and data and isinstance(data[0], str) else None
    if function is None or len(data) != len(signature(function).parameters):
        raise StepError(f"no step of {', '.join(STEPS)}: {data}")
    args: list[Any] = [tuple(v) if isinstance(v, list) else v for v in data[1:]]
    return Step(data[0], (*args[:2], ANNOTATIONS[args[2]]) if data[0] == "AN" else tuple(args))


def record_line(key: list[object], machine: Machine, state: State, result: Result) -> str:
    """A line of a log, in the format of TVM, which the engine reads, too."""
    task = [json.dumps(key), machine.target, list(astuple(machine)[1:]), "", 0, []]
    measured = [list(result.costs), result.error_no, result.all_cost, result.timestamp]
    return json.dumps({"i": [task, [[], list(map(step_to_json, state.steps))]], "r": measured, "v": "v0.6"})


class Model:
    """Gradient-boosted trees; the score of a program is the sum of what they say of its rows (section 5.2)."""

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.trees: xgboost.Booster | None = None

    def fit(self, programs: Sequence[np.ndarray], costs: Sequence[float]) -> None:
        """Learn from measured programs: their features, and seconds (1e10 where they failed)."""
        labels = min(costs) / np.array(costs)
        pack = np.repeat(np.arange(len(programs)), [len(p) for p in programs])

        def objective(scores: np.ndarray, _: xgboost.DMatrix) -> tuple[np.ndarray, np.ndarray]:
            """Squared error of the sums; fast programs must be told apart best, and count most."""
            sums = np.bincount(pack, weights=scores, minlength=len(programs))
            return (sums - labels)[pack] * labels[pack], labels[pack]

        params = {"max_depth": 6, "eta": 0.2, "min_child_weight": 0, "gamma": 0.001, "seed": self.seed, "base_score": 0}
        data = xgboost.DMatrix(np.concatenate(programs), label=labels[pack])
        self.trees = xgboost.train(params, data, num_boost_round=60, obj=objective)

    def predict(self, programs: Sequence[np.ndarray]) -> np.ndarray:
        """A score for each program, higher is better; all are equal before anything was learnt."""
        if self.trees is None or not programs:
            return np.zeros(len(programs))
        pack = np.repeat(np.arange(len(programs)), [len(p) for p in programs])
        scores = self.trees.predict(xgboost.DMatrix(np.concatenate(programs)))
        return np.bincount(pack, weights=scores, minlength=len(programs))


class Search:
    """Programs of one computation: what was measured, and what the model has learnt of it."""

    def __init__(self, args: Sequence[Op], machine: Machine, rng: np.random.Generator) -> None:
        self.machine, self.rng, self.sketches = machine, rng, generate_sketches(args, machine)
        self.model = Model(int(rng.integers(2**31)))
        self.measured: dict[str, tuple[State, Result, Genes]] = {}

    def ranked(self) -> list[tuple[State, Result, Genes]]:
        """The programs that were measured and are right, the fastest first."""
        right = [found for found in self.measured.values() if not found[1].error_no]
        return sorted(right, key=lambda found: found[1].cost)

    def score(self, states: Sequence[State]) -> np.ndarray:
        return self.model.predict([features(state, self.machine) for state in states])

    def propose(self, count: int) -> list[Scored]:
        """What to measure next: the best new programs of an evolution; a few at random, as the model may be wrong."""
        drawn = [random_genes(self.sketches[self.rng.integers(len(self.sketches))], self.rng) for _ in range(DRAWN)]
        kept = [genes for _, _, genes in self.ranked()[:KEPT]]
        found = evolve([*kept, *drawn], self.score, self.machine, self.rng)
        new = [scored for scored in found if str(scored[1]) not in self.measured]
        good = new[: count - int(AT_RANDOM * count)]
        others = new[len(good) :]
        return [*good, *[others[i] for i in self.rng.permutation(len(others))[: count - len(good)]]]

    def learn(self, scored: Scored, result: Result) -> None:
        self.measured[str(scored[1])] = scored[1], result, scored[2]

    def fit(self) -> None:
        """Train the model anew on all that was measured."""
        rows = [features(state, self.machine) for state, _, _ in self.measured.values()]
        self.model.fit(rows, [result.cost for _, result, _ in self.measured.values()])


def tune(search: Search, trials: int, measurer: Measurer, record: Callable[[State, Result], None]) -> None:
    """Measure programs until there are `trials` of them or no new ones; `record` is told of each."""
    start = time.time()
    while len(search.measured) < trials:
        proposed = search.propose(min(PER_ROUND, trials - len(search.measured)))
        if not proposed:
            break
        for scored in proposed:
            result = measurer.measure(scored[1])
            record(scored[1], result)
            search.learn(scored, result)
        search.fit()
        best = search.ranked()[:1]
        text = f"{1000 * best[0][1].cost:.3f} ms" if best else f"none is right yet, of the last one: {result.message}"
        print(f"{len(search.measured):5} programs, {time.time() - start:5.1f} s, best: {text}", flush=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m mini_ansor", description="The Ansor paper in twelve files.")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("shape", nargs="*", type=int, help="the numbers of the workload, or one for all")
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="a file that records are added to")
    parser.add_argument("--print", choices=("sketches", "c"), help="the sketches, or the C text of the best program")
    given = parser.parse_args()
    workload = WORKLOADS[given.workload]
    shape, count = given.shape or workload.default, len(workload.default)
    shape = shape * count if len(shape) == 1 else shape
    if len(shape) != count:
        parser.error(f"one number or {count} are needed, got {len(shape)}")
    try:
        args, key = workload.make(*shape), workload.key(*shape)
    except ValueError as e:
        parser.error(str(e))
    rng, machine = np.random.default_rng(given.seed), Machine(num_cores=os.cpu_count() or 1)
    search = Search(args, machine, rng)
    if given.print == "sketches":
        print("\n".join(map(str, search.sketches)))
        return

    def record(state: State, result: Result) -> None:
        if given.log:
            with given.log.open("a") as log:
                log.write(record_line(key, machine, state, result) + "\n")

    if shutil.which("gcc") is None:
        parser.error("gcc compiles the programs, and is not on the PATH")
    tune(search, given.trials, Measurer(args, rng), record)
    for state, result, _ in search.ranked()[:1]:
        print(state if given.print is None else c_text(lower(state)))
        print(f"{1000 * result.cost:.3f} ms, {total_flops(args) / result.cost / 1e9:.1f} GFLOP/s")


if __name__ == "__main__":
    main()
