"""No task kills a run: computations and tasks of networks through the first evolutionary round of a search."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import te_lite as te
from ansor.core.tasks.task import SearchTask
from ansor.cost_model import XGBModel
from ansor.policy.sketch_policy import SketchPolicy
from ansor.space.programs import programs
from ansor.space.sample import sample_rows
from te_lite.errors import TeError

from . import description, draw, named, shrink
from .build import tensors
from .description import Dag
from .lanes import CHECKS, HARDWARE
from .named import Tasks
from .outcome import Finding, Outcome, raised
from .programs import TARGETS

OF_NETWORKS = 8
"""One draw of so many is of tasks of a network."""
ASKED, LANES = 8, 32
PARAMS = {"evolutionary_search_population": 128, "evolutionary_search_num_iters": 1}
"""Fewer programs than a search looks at, but of as many variants, and with children: what makes its code differ."""

Given = Dag | Tasks
Watch = Callable[[str], None]


@dataclass(frozen=True)
class AskJob:
    """A computation, or tasks of a network; `seed` draws the programs."""

    seed: int
    given: Given
    targets: tuple[str, ...] = TARGETS


def drawn(seed: int) -> Given:
    """The computation or the tasks of a seed."""
    if seed % OF_NETWORKS:
        return draw.draw(seed)
    return named.draw(np.random.default_rng([seed, 15]))


def again(given: Given, finding: Finding, seed: int) -> list[AskJob]:
    """The job that tries a description as a finding was made."""
    return [AskJob(seed, given, (finding.target,) if finding.target in TARGETS else TARGETS)]


def run_asks(jobs: Sequence[AskJob], watch: Watch = lambda text: None) -> list[Outcome]:
    """The outcome of each job."""
    return [_outcome(job, watch) for job in jobs]


def _outcome(job: AskJob, watch: Watch) -> Outcome:
    outcome = Outcome(job.seed)
    for target in job.targets:
        watch(f"seed {job.seed}: make tasks ({target})")
        try:
            tasks = made(job.given, target)
        except TeError as error:
            outcome.refuse("make tasks", target, error)
            continue
        except Exception as error:
            outcome.findings.append(Finding("exception", "make tasks", target, raised(error)))
            continue
        for task in tasks:
            watch(f"seed {job.seed}: ask ({target})")
            _asked(task, job.seed, outcome)
    return outcome


def made(given: Given, target: str) -> list[SearchTask]:
    """The tasks of a description.  Raises whatever making them raises."""
    if isinstance(given, Tasks):
        return given.made(target)
    dag = te.ComputeDAG(tensors(given))
    return [SearchTask(compute_dag=dag, target=target, hardware_params=HARDWARE[target])]


def _asked(task: SearchTask, seed: int, outcome: Outcome) -> None:
    """The first round of a task, and every program of it looked at once more; nothing may be raised."""
    target, phase = task.target.kind.name, "ask"
    try:
        policy = SketchPolicy(task, XGBModel(seed=seed), PARAMS, seed, verbose=0)
        states = policy.ask(ASKED)
        for phase, text in _faults(policy, states, target):
            outcome.findings.append(Finding("features", phase, target, text))
    except Exception as error:
        outcome.findings.append(Finding("exception", phase, target, raised(error)))
    else:
        outcome.programs[f"tasks for {target}"] += 1
        outcome.programs["programs asked for"] += len(states)


def _faults(policy: SketchPolicy, states: Sequence[te.State], target: str) -> list[tuple[str, str]]:
    """What is wrong with the proposals: the phase, and a sentence.

    Each variant is looked at with the rows that were proposed of it and some random ones; one of them alone, too.
    """
    if not states:
        return [("ask", "no program was proposed")]
    found = [policy.proposals.remember(state) for state in states]
    rows = {row[0]: (row[1], state) for row, state in zip(found, states, strict=True) if row is not None}
    if None in found:
        return [("ask", "a program that was proposed is not found again")]
    faults: list[tuple[str, str]] = []
    for variant, (row, state) in rows.items():
        others = sample_rows(variant, LANES, policy.rng, target, HARDWARE[target])
        many = programs(variant, np.vstack([row, others]), target, HARDWARE[target])
        for name, check in CHECKS.items():
            faults += [(name, text) for text in check(many, {0: state}, target)]
    return list(dict.fromkeys(faults))


def smaller(given: Given) -> Any:
    """Simpler descriptions."""
    return named.smaller(given) if isinstance(given, Tasks) else shrink.smaller(given)


def text_of(given: Given) -> str:
    """A description for people."""
    return named.text_of(given) if isinstance(given, Tasks) else shrink.text_of(given)


def to_json(given: Given) -> str:
    """One line."""
    return named.to_json(given) if isinstance(given, Tasks) else description.to_json(given)


def from_json(text: str) -> Given:
    """The description in `to_json`'s text."""
    return (description if "stages" in json.loads(text) else named).from_json(text)


def jobs_of_models(folder: Path) -> list[AskJob]:
    """A job for each ONNX model of a folder and each layout, numbered from 0."""
    return [AskJob(seed, model) for seed, model in enumerate(named.models(folder))]
