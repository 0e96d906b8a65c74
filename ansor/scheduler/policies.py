"""One search policy a task; they share one cost model, unless the package has one that knows of many tasks already."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from te_lite.errors import require

from ..core.errors import TaskError
from ..core.tasks.task import SearchTask
from ..core.values.checks import checked_seed
from ..cost_model import CostModel, RandomModel, XGBModel
from ..cost_model.prior import shipped_model_of
from ..policy.protocols import RoundPolicy, require_own_task
from ..policy.sketch_policy import SketchPolicy
from ..records.lines import Record, validated_records
from ..records.of_task import is_of

PathLike = str | os.PathLike[str]
OWN_WARM_UP = 32
"""Programs that a model of one task has seen, at most, before its scores mean something."""


def know_others(search_policy: str | Sequence[RoundPolicy], tasks: Sequence[SearchTask]) -> bool:
    """Whether policies of this name have models of their own, since the package knows of tasks like theirs.

    Of 4,992 programs of ResNet-18 on an H200, trees that had seen the first 64 of each of 20 tasks put the next 64 of a
    task in an order of rank correlation 0.59 when they were trained on all tasks together, 0.55 on that task alone; of
    the 16 that they liked most, with the analytical model, the best took 1.012 and 1.017 times as long as that of all
    64.  After 32 of each of 24 tasks the four were 0.94, 0.95, 1.002 and 1.002 (the package's model knew that log).
    """
    named = isinstance(search_policy, str) and search_policy in ("default", "sketch.xgb")
    return named and all(shipped_model_of(task) is not None for task in tasks)


def make_search_policies(
    search_policy: str | Sequence[RoundPolicy],
    search_policy_params: Mapping[str, Any] | None,
    tasks: Sequence[SearchTask],
    num_measures_per_round: int,
    verbose: int,
    load_model_file: PathLike | None = None,
    load_log_file: PathLike | None = None,
    adaptive_training: bool = False,
    seed: int | None = None,
    records: Sequence[Record] | None = None,
) -> list[RoundPolicy]:
    """A policy for each task.

    `search_policy` is "sketch.xgb" (also called "default"), "sketch.random", or a list with a policy for each task,
    which is taken as it is.  Where the package has a model for all targets (`know_others`), each policy has a model of
    its own, which goes on from that one; else all share one, so that what is learnt from one task helps the others.
    The model starts from `load_model_file`, then learns the records of `load_log_file`;
    neither file is written to.  Programs in the log are not measured again; `records` is what it holds, where
    it was read already.
    Raises TaskError for another policy, a list of another length, one policy for two tasks or for another task than the
    one in its place, or a model file for a policy that has no use for it.
    """
    if not isinstance(search_policy, str):
        law = "a name, or a list with a policy for each task is needed"
        ok = isinstance(search_policy, list | tuple) and len(search_policy) == len(tasks)
        require(ok, TaskError, "search_policy", law, got=search_policy, tasks=len(tasks))
        given = _checked(search_policy, tasks)
        _no_model_file(load_model_file, "policies that are given have models of their own")
        require(not search_policy_params, TaskError, "search_policy_params", "policies that are given have their own")
        return given
    if records is None and load_log_file is not None:
        records = list(validated_records(load_log_file))
    rng = np.random.default_rng(None if seed is None else checked_seed("make_search_policies", seed))
    seeds = [int(k) for k in rng.integers(1, 2**30, len(tasks) + 1)]
    models: Sequence[CostModel]
    match "sketch.xgb" if search_policy == "default" else search_policy:
        case "sketch.xgb":
            make = partial(XGBModel, seed=seeds[-1], adaptive_training=adaptive_training)
            models = _models(make, tasks, num_measures_per_round, load_model_file, records or ())
        case "sketch.random":
            _no_model_file(load_model_file, "the random model has nothing to load")
            models = [RandomModel(seeds[-1])]
        case other:
            law = "'default', 'sketch.xgb', 'sketch.random' or a list of policies is needed"
            raise TaskError(f"search_policy: {law}, got {other!r}")
    policies = [
        SketchPolicy(task, models[k % len(models)], search_policy_params, seeds[k], verbose)
        for k, task in enumerate(tasks)
    ]
    if load_log_file is not None:
        for policy in policies:
            policy.preload_measured_states(load_log_file, records)
    return list[RoundPolicy](policies)


def _checked(policies: Sequence[RoundPolicy], tasks: Sequence[SearchTask]) -> list[RoundPolicy]:
    """Policies that were given, one a task, in the order of the tasks."""
    for k, (policy, task) in enumerate(zip(policies, tasks, strict=True)):
        law = "a policy needs the method continue_search_one_round"
        hint = "; a class was given, call it" if isinstance(policy, type) else ""
        ok = isinstance(policy, RoundPolicy) and not hint
        require(ok, TaskError, f"search_policy[{k}]", law + hint, got=policy)
        first = next(j for j, other in enumerate(policies) if other is policy)
        law = f"one policy serves two tasks, {first} and {k}; each needs one of its own"
        require(first == k, TaskError, "search_policy", law, got=policy)
        require_own_task(f"search_policy[{k}]", policy, task)
    return list(policies)


def _no_model_file(load_model_file: PathLike | None, law: str) -> None:
    require(load_model_file is None, TaskError, "load_model_file", law, load_model_file=load_model_file)


def _models(
    make: Callable[..., XGBModel], tasks: Sequence[SearchTask], per_round: int, model_file: PathLike | None,
    records: Sequence[Record],
) -> list[XGBModel]:  # fmt: skip
    """A model for each task, which learns the records of that, or one for all."""
    if not know_others("sketch.xgb", tasks):
        return [_trained(make(num_warmup_sample=len(tasks) * per_round), model_file, records)]
    warm_up = min(OWN_WARM_UP, per_round)
    known = [[record for record in records if is_of(record[0], task)] for task in tasks]
    return [_trained(make(num_warmup_sample=warm_up), model_file, those) for those in known]


def _trained(model: XGBModel, model_file: PathLike | None, records: Sequence[Record]) -> XGBModel:
    if model_file is not None:
        model.load(model_file)
    if records:
        model.update([inp for inp, _ in records], [res for _, res in records])
    return model
