"""The study's variants on measured programs, its statistics, and that a study goes on where it was stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ansor.core.errors import TaskError
from ansor.offline.contest import Run, candidates_of, contest
from benchmarks import study, study_variants
from benchmarks.study_live import Case, latencies
from tests.ansor.test_bench_search import made_up


@pytest.mark.parametrize("name", study_variants.OFFLINE)
def test_a_variant_tries_every_program_once(name: str) -> None:
    matrix = made_up(40)
    run = contest(getattr(study_variants, name), matrix, candidates_of(matrix), 1, 1000, 9)
    assert sorted(run.seconds) == sorted(matrix.seconds)


def test_the_limited_space_comes_first() -> None:
    matrix = made_up(60)
    make = study_variants.LimitedSpace
    searcher = make(candidates_of(matrix), np.random.default_rng(0))
    (kept,) = set(matrix.decisions[searcher.free, 0].tolist())
    assert searcher.free.sum() == (matrix.decisions[:, 0] == kept).sum() == np.bincount(matrix.decisions[:, 0]).max()


@pytest.mark.parametrize("name", ["Trees", "Linear"])
def test_models_order_programs_that_they_were_not_told(name: str) -> None:
    matrix = made_up(300)
    found = study.judged(study_variants.MODELS[name], matrix, 150, 0)
    assert found is not None and found[0] > 0.6 and all(0 <= share <= 1 for share in found)
    assert study.judged(study_variants.MODELS[name], matrix, 250, 0) is None


def test_runs_are_kept(tmp_path: Path) -> None:
    made: list[int] = []

    def make() -> list[float]:
        made.append(1)
        return [1.0, np.inf]

    for _ in range(2):
        kept = study.Kept(tmp_path / "runs.jsonl")
        assert kept.get(("a", "task", 0, 16), make) == [1.0, np.inf] and len(made) == 1


def test_curves_and_bands_by_hand() -> None:
    runs = {"a": [Run(np.array([2.0, 1.0, 4.0]), 1.0)] * 2, "b": [Run(np.array([1.0, 3.0]), 1.0)] * 2}
    curves = study.qualities(runs)
    assert curves.tolist() == [[0.75, 1.0, 1.0]] * 2
    values = np.random.default_rng(0).normal(5, 2, (400, 1))
    mean, low, high = study.band(values, np.random.default_rng(1))[:, 0]
    half = 1.96 * values.std() / 20
    assert mean == values.mean() and abs(mean - low - half) < 0.1 * half and abs(high - mean - half) < 0.1 * half
    assert not len(latencies(Path("no such log"), Case("none", ())))


@pytest.mark.parametrize(
    ("words", "law"),
    [("networks", "name --device c or cuda"), ("cost-model --device c", "is run on --device offline")],
)
def test_what_a_study_refuses(words: str, law: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("sys.argv", ["study", *words.split(), "--out", str(tmp_path / "out")])
    with pytest.raises(TaskError, match=law):
        study.main()
    assert not (tmp_path / "out").exists()
