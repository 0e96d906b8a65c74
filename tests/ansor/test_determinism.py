"""A seed decides the whole sequence of candidates: in every process, on every Python, when results are replayed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ansor.offline.analytical import AnalyticalRunner
from tests.amount import some
from tests.ansor.search_case import MODELS, PER_ROUND, TARGETS, TRIALS, digest, tune

SEQUENCES = {
    "c random": "5bf28763f26dfa45",
    "c analytical": "eec02e424c03b4a4",
    "cuda random": "d1ee6bed71ee6977",
    "cuda analytical": "b442183b1102f7b4",
}
"""Digests of the programs proposed, seen on CPython 3.11 with NumPy 2.4.

NumPy does not promise that a later version draws the same numbers, and whoever changes what the search proposes
changes these.  The learning model has none: its trees depend on the version of xgboost.
"""


OFTEN = {"c random", "cuda analytical"}
"""The cases with digests that are not only for `make fuzz`."""


def run_elsewhere(directory: Path, hash_seed: str, *words: str) -> dict[str, str]:
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    env = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
    command = [sys.executable, "-m", "tests.ansor.search_case", os.fspath(directory), *words]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_two_processes_ask_for_the_same_programs(tmp_path: Path) -> None:
    """The second one has other hashes of texts, and takes the results from the log of the first."""
    cases = [f"{target} {model}" for target in TARGETS for model in MODELS]
    chosen = some(cases, [case for case in cases if case in OFTEN or case not in SEQUENCES])
    only = ["only=" + case.replace(" ", ",") for case in chosen]
    first = run_elsewhere(tmp_path, "1", *only)
    assert run_elsewhere(tmp_path, "2", "replay", *only) == first
    assert list(first) == chosen and len(set(first.values())) == len(chosen)
    assert {case: found for case, found in first.items() if case in SEQUENCES}.items() <= SEQUENCES.items()


@pytest.mark.long
@pytest.mark.parametrize("case", [pytest.param(c, marks=[] if c in OFTEN else [pytest.mark.slow]) for c in SEQUENCES])
def test_every_process_asks_for_the_same_programs(case: str, tmp_path: Path) -> None:
    """Also this one, whose hashes of texts are its own."""
    target, model = case.split()
    found = tune(target, model, tmp_path / "log", AnalyticalRunner(noise=0.2, seed=3))
    assert len(set(found)) == TRIALS and digest(found) == SEQUENCES[case]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.one_in(2)
def test_another_seed_asks_for_other_programs(target: str, tmp_path: Path) -> None:
    found = tune(target, "random", tmp_path / "log", AnalyticalRunner(noise=0.2, seed=3), 5)
    assert len(set(found)) == TRIALS and digest(found) != SEQUENCES[f"{target} random"]


@pytest.mark.long
@pytest.mark.parametrize("target", [pytest.param("c", marks=pytest.mark.slow), "cuda"])
def test_results_decide_what_comes_next(target: str, tmp_path: Path) -> None:
    trials = PER_ROUND * (3 if target == "cuda" else 2)  # on a GPU a round is searched while the one before runs
    runners = [AnalyticalRunner(noise=0.5, seed=k) for k in range(2)]
    found = [tune(target, "learning", tmp_path / str(k), r, trials=trials) for k, r in enumerate(runners)]
    assert found[0][:PER_ROUND] == found[1][:PER_ROUND] and found[0] != found[1]
