"""A small tour of the product, run in a copy of the packages from which extensions are deleted.

    python without_extensions.py NAME ...    the extensions that must be gone, and none else

Searches, default programs, a network and TVM's golden sketches, all from what is left.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import ansor
import relay_lite
import te_lite as te
from ansor.cli.main import main
from ansor.policy.default_schedule import default_state
from ansor.sketch.generate import OWNERS, extra_rules
from relay_lite import graph_executor
from te_lite.extensions import BY_NAME, STEPS, chosen
from te_lite.schedule.step import from_json, kind_of


def product(rows: int, columns: int, terms: int) -> list[te.Tensor]:
    """A product with a ReLU behind it."""
    a, b = te.placeholder((rows, terms), name="a"), te.placeholder((terms, columns), name="b")
    k = te.reduce_axis((0, terms), "k")
    c = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="c")
    zero = te.const(0.0, "float32")
    return [a, b, te.compute(c.shape, lambda i, j: te.maximum(c[i, j], zero), name="d")]


def searched(log: Path) -> None:
    """A search on C finds a program and the log is read again."""
    task = ansor.SearchTask(compute_dag=product(32, 48, 64), target="c")
    options = ansor.TuningOptions(num_measure_trials=6, verbose=0, measure_callbacks=[ansor.RecordToFile(str(log))])
    task.tune(options, ansor.SketchPolicy(task, ansor.XGBModel(seed=0), seed=0, verbose=0))
    schedule, args = task.apply_best(str(log))
    assert ansor.build(schedule, args, "c") is not None


def default_programs() -> None:
    """Default programs for both targets, of what extensions have programs for and of what they have none for."""
    x, y = te.placeholder((64, 2048), name="x"), te.placeholder((64, 1 << 15), name="y")
    others = ([x, te.topi.nn.softmax(x)], [y, te.topi.sum(y, 1)], [y, te.topi.transpose(y)])
    for tensors in (product(2048, 2048, 2048), product(1, 256, 1024), *others):
        for target in ("c", "cuda -arch=sm_90"):
            state = default_state(ansor.SearchTask(compute_dag=tensors, target=target))
            assert state is None or te.lower(state, state.dag.tensors)


def network() -> None:
    """A small network compiles, untuned, and runs."""
    module, params = relay_lite.testing.get_workload("mlp", batch_size=2)
    built = relay_lite.build(module, target="c", params=params)
    runner = graph_executor.GraphModule(built["default"](ansor.cpu(0)))
    runner.run(data=np.ones((2, 28, 28, 1), "float32"))
    assert np.isfinite(np.asarray(runner.get_output(0).numpy())).all()


def records(log: Path, gone: set[str]) -> None:
    """Of a log with a program that fetches ahead and a plain one, what cannot be read is refused by its extension."""
    reader = ansor.RecordReader(log)
    found = list(reader)
    assert len(found) == (1 if "pipeline" in gone else 2)
    complaint = reader.complaint() if "pipeline" in gone else "the extension 'pipeline' is needed"
    assert "the extension 'pipeline' is needed" in complaint, complaint


def steps(gone: set[str]) -> None:
    """Letters of what is gone are refused by the name of its extension, and so is a scope of fragments."""
    asked: list[tuple[str, Callable[[], object]]]
    asked = [(owner, partial(kind_of, letters)) for letters, (owner, _) in STEPS.items()]
    asked += [("tensor_core", partial(from_json, ["SSC", 1, "fragment.m16n8k16_f16_f32.a"]))]
    for owner, ask in asked:
        try:
            ask()
        except te.RecordError as error:
            assert owner in gone and f"the extension {owner!r} is needed" in str(error), error
        else:
            assert owner not in gone


def refusals(gone: set[str]) -> None:
    """A rule of what is gone is refused by the name of its extension; what is left has all its rules."""
    assert chosen() == frozenset(BY_NAME) - gone
    for rule, owner in OWNERS.items():
        if owner in gone:
            try:
                extra_rules(rule)
            except ansor.TaskError as error:
                assert repr(owner) in str(error), error
            else:
                raise AssertionError(f"{rule} is not refused")


if __name__ == "__main__":
    refusals(set(sys.argv[1:]))
    for name in ansor.__all__:
        getattr(ansor, name)
    assert main(["doctor"]) == 0
    records(Path("records.json"), set(sys.argv[1:]))
    steps(set(sys.argv[1:]))
    searched(Path("searched.json"))
    default_programs()
    network()
    print(json.dumps("all is well"))
