"""What builders and runners of one's own give, checked: what is no result would end far from its cause."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.errors import PartError
from ..core.tasks.measure_values import BuildResult, MeasureErrorNo, MeasureInput, MeasureResult
from ..core.tasks.protocols import Builder, PairedRunner, Runner
from ..core.values.checks import require_counts
from ..core.values.parts import asking, called

BUILDER, RUNNER = "builder", "runner"


def submitted(builder: Builder, inp: MeasureInput) -> Future[BuildResult]:
    """A candidate queued.  Raises PartError when a builder of the user's own raises, or gives no Future."""
    with asking(BUILDER, builder, "submit"):
        build = builder.submit(inp)
    ok = isinstance(build, Future)
    require(ok, PartError, called(BUILDER, builder), "submit must give a Future of a BuildResult", got=build)
    return build


def built_by(builder: Builder, build: Future[BuildResult]) -> BuildResult:
    """What became of a build, waited for.  Raises PartError when a builder of the user's own raised, or gave none."""
    with asking(BUILDER, builder, "its Future"):
        built = build.result()
    ok = isinstance(built, BuildResult)
    require(ok, PartError, called(BUILDER, builder), "the Future must give a BuildResult", got=built)
    _check_end(called(BUILDER, builder), built)
    return built


def at_a_time(builder: Builder) -> int:
    """How many candidates a builder builds at a time.  Raises PartError for what is no number of at least 1."""
    with asking(BUILDER, builder, "n_parallel"):
        count = builder.n_parallel
    require_counts(PartError, called(BUILDER, builder), n_parallel=count)
    return count


def _check_end(subject: str, result: BuildResult | MeasureResult) -> None:
    """Raise PartError, naming `subject`, unless a result says how it ended: `error_no` and `error_msg`."""
    number: Any = result.error_no
    known = ", ".join(f"{e.value} {e.name}" for e in MeasureErrorNo)
    ok = isinstance(number, int | np.integer) and not isinstance(number, bool) and number in list(MeasureErrorNo)
    require(ok, PartError, subject, f"error_no must be a MeasureErrorNo ({known})", got=number)
    require(isinstance(result.error_msg, str), PartError, subject, "error_msg must be text", got=result.error_msg)


def run_by(runner: Runner, inp: MeasureInput, built: BuildResult) -> MeasureResult:
    """How a candidate ended.

    Raises PartError when a runner of the user's own raises, gives no MeasureResult, or one that no record can hold.
    """
    with asking(RUNNER, runner, "run"):
        result = runner.run(inp, built)
    subject = called(RUNNER, runner)
    require(isinstance(result, MeasureResult), PartError, subject, "run must give a MeasureResult", got=result)
    _check_end(subject, result)
    costs: Any = result.costs
    law = "costs must be a tuple of seconds, one a repeat"
    ok = isinstance(costs, tuple | list | np.ndarray) and len(costs) > 0
    require(ok, PartError, subject, law, got=costs)
    for cost in costs:
        law = "a cost must be a positive number of seconds" if result.ok else "the cost of a failure must be a number"
        require(_is_number(cost) and (cost > 0 or (not result.ok and cost >= 0)), PartError, subject, law, got=cost)
    law = "all_cost must be a number of seconds"
    ok = _is_number(result.all_cost) and result.all_cost >= 0
    require(ok, PartError, subject, law, got=result.all_cost)
    law = "timestamp must be a number of seconds since 1970"
    require(_is_number(result.timestamp) and result.timestamp >= 0, PartError, subject, law, got=result.timestamp)
    require(isinstance(result.device, str), PartError, subject, "device must be text", got=result.device)
    return result


def compared_by(
    runner: PairedRunner, inputs: Sequence[MeasureInput], builds: Sequence[BuildResult]
) -> list[list[float]]:  # fmt: skip
    """Figures of programs in turns.  Raises PartError when a runner of the user's own raises, or gives none."""
    with asking(RUNNER, runner, "compare"):
        times = runner.compare(inputs, builds)
    law = f"compare must give a list of positive figures for each of the {len(inputs)} programs"
    ok = isinstance(times, list | tuple) and len(times) == len(inputs)
    ok = ok and all(isinstance(t, list | tuple | np.ndarray) and all(_is_number(s) and s > 0 for s in t) for t in times)
    require(ok, PartError, called(RUNNER, runner), law, got=times)
    return [list(t) for t in times]


def _is_number(value: Any) -> bool:
    """Whether a value is a finite number."""
    ok = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return ok and math.isfinite(value)
