"""What can be run by seed: single computations, those with special values, networks, and rounds of a search."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from . import (
    asks,
    description,
    model,
    model_draw,
    network,
    network_oracle,
    numpy_oracle,
    shrink,
    shrink_model,
    shrink_network,
)
from .batch import Job, run_batch
from .draw import draw, draw_wide
from .model_run import ModelJob, run_models
from .network_run import NetworkJob, run_networks
from .outcome import Finding
from .random_inputs import random_inputs


@dataclass(frozen=True)
class Kind:
    """One kind of description, from its seed to its outcome.

    `jobs` makes the jobs that try a description again as a finding was made; `work` runs jobs; `smaller` gives
    simpler descriptions, `means` raises for one that has no meaning; `text` shows one, `read` and `write` are JSON.
    """

    name: str
    draw: Callable[[int], Any]
    job: Callable[[int, Any], Any]
    jobs: Callable[[Any, Finding, int], list[Any]]
    work: Callable[..., Any]
    smaller: Callable[[Any], Iterator[Any]]
    means: Callable[[Any], object]
    text: Callable[[Any], str]
    write: Callable[[Any], str]
    read: Callable[[str], Any]


DRAWS = 8
"""Draws of programs of a smaller description: the one that failed is not a program of it."""


def _again(dag: description.Dag, finding: Finding, seed: int) -> list[Job]:
    targets = (finding.target,) if finding.target in ("c", "cuda") else ("c", "cuda")
    return [Job(s, dag, targets, 2) for s in (seed, *range(DRAWS - 1))]


EMULATED = 3
"""One computation of so many with all dtypes is also run as CUDA: the emulator takes longer than all else."""


def _wide_job(seed: int, dag: description.Dag) -> Job:
    return Job(seed, dag, ("c", "cuda") if seed % EMULATED == 0 else ("c",))


def _dags(name: str, drawn: Callable[[int], description.Dag], job: Callable[..., Job] = Job) -> Kind:
    return Kind(
        name, drawn, job, _again, run_batch, shrink.smaller,
        lambda dag: numpy_oracle.evaluate(dag, random_inputs(dag)), shrink.text_of,
        description.to_json, description.from_json,
    )  # fmt: skip


KINDS = {
    "dags": _dags("dags", draw),
    "special": _dags("special", lambda seed: draw(seed, True)),
    "wide": _dags("wide", draw_wide, _wide_job),
    "asks": Kind(
        "asks", asks.drawn, asks.AskJob, asks.again, asks.run_asks, asks.smaller,
        lambda given: asks.made(given, "cuda"), asks.text_of, asks.to_json, asks.from_json,
    ),
    "models": Kind(
        "models", model_draw.draw, ModelJob, lambda m, finding, seed: [ModelJob(seed, m)], run_models,
        shrink_model.smaller, model_draw.means, shrink_model.text_of, model.to_json, model.from_json,
    ),
    "graphs": Kind(
        "graphs", network.draw, NetworkJob, lambda n, finding, seed: [NetworkJob(seed, n)], run_networks,
        shrink_network.smaller, network_oracle.evaluate, shrink_network.text_of, network.to_json, network.from_json,
    ),
}  # fmt: skip
