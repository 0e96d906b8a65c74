"""The table of all configurations: how it is made, that it still holds, and what tuners are told from it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.vta_exhaustive import (
    TIMES,
    Times,
    complete,
    layer_task,
    outcome,
    read_journal,
    read_times,
    summary,
    times_of,
    write_times,
)
from benchmarks.vta_tuners import TUNERS, budget, figures_of, geometric_mean, slowdowns, verdicts
from tests.vta_sim.conv import LAYERS, Layer
from vta_sim.backend import Trials

SMALL = {"small": Layer(4, 16, 32, 3, 1, 1)}


@pytest.fixture(scope="module")
def journal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("exhaustive") / "journal.jsonl"
    complete(SMALL, path, 2)
    return path


def small_times(journal: Path) -> Times:
    return times_of(read_journal(journal))


@pytest.mark.long
def test_all_configurations_once(journal: Path, tmp_path: Path) -> None:
    """As a loop over trials finds them; an interrupted run goes on with what is left."""
    task, trials = layer_task(SMALL["small"]), Trials()
    found = {o.index: (o.ms, o.reason) for o in read_journal(journal)}
    assert sorted(found) == list(range(len(task.config_space))) and len(read_journal(journal)) == len(found)
    for index in range(0, len(found), 5):
        again = outcome(trials, "small", task, index)
        assert (again.ms, again.reason) == found[index]
    assert {ms is None for ms, _ in found.values()} == {True, False}
    lines = journal.read_text().splitlines()
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(line + "\n" for line in lines[3:29]))
    whole = complete(SMALL, cut, 1)
    assert cut.read_text().splitlines()[:26] == lines[3:29]
    assert [o.index for o in whole] == sorted(found) and {o.index: (o.ms, o.reason) for o in whole} == found


def test_summary_and_table(journal: Path, tmp_path: Path) -> None:
    """The optimum is the least time; the reasons count every refusal; the table can be read again."""
    outcomes, times = read_journal(journal), small_times(journal)
    row, valid = summary("small", SMALL["small"], outcomes), times["small"]
    assert row["optimum_ms"] == min(valid.values()) == valid[row["index"]]
    assert row["valid"] == len(valid) and sum(row["reasons"].values()) == row["size"] - row["valid"]
    assert row["gops"] == pytest.approx(2 * 16 * 32 * 9 * 4 * 4 / row["optimum_ms"] / 1e6)
    write_times(tmp_path / "times.json", times)
    again = read_times(tmp_path / "times.json")["small"]
    assert list(again) == list(valid) and np.allclose(list(again.values()), list(valid.values()), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", TUNERS)
def test_slowdowns_of_whole_searches(name: str, journal: Path) -> None:
    """Never below 1, never rising, and 1 once the space is used up."""
    task, times = layer_task(SMALL["small"]), small_times(journal)["small"]
    size = len(task.config_space)
    curve = slowdowns(task, TUNERS[name], 0, size + 4, times)
    assert curve.shape == (size + 4,) and (np.diff(np.minimum(curve, 1e9)) <= 0).all()
    assert curve.min() == curve[size - 1] == curve[-1] == pytest.approx(1)
    if name == "grid":
        best = min(times.values())
        expected = [best / times[k] if k in times else 0.0 for k in range(size)]
        assert np.allclose(1 / curve[:size], np.maximum.accumulate(expected))


def test_figures_of_searches() -> None:
    """Medians of seeds, geometric means over tasks, and the criteria."""
    xgb = np.array([[[4.0, 1.0], [2.0, 1.0], [2.0, 1.06]], [[np.inf, 1.0], [1.0, 1.04], [1.0, 1.0]]])
    assert geometric_mean(xgb)[1:, 0] == pytest.approx([2**0.5, 2**0.5]) and geometric_mean(xgb)[0, 0] == np.inf
    figures = figures_of(xgb, ["a", "b"], (1, 2))
    assert figures["1"]["median"] == {"a": 1.0, "b": 0.0} and figures["1"]["worst_seed"] == {"a": 3.0, "b": None}
    assert figures["2"]["geometric_mean"] == pytest.approx(1.04**0.5 - 1)
    found = {"random": xgb * 1.1, "ga": xgb * 1.2, "xgb": xgb}
    assert verdicts(found) == {"xgb_within_5_percent": True, "xgb_beats_random": True, "ga_beats_random": False}
    assert not verdicts({"xgb": xgb * 1.1})["xgb_within_5_percent"]


def test_budget_counts_what_was_chosen(journal: Path) -> None:
    task, times = layer_task(SMALL["small"]), small_times(journal)["small"]
    row = budget(task, "small", times, dict.fromkeys(range(len(task.config_space)), 0.5))
    assert (row["trials"], row["valid"], row["trials_s"]) == (len(task.config_space), len(times), row["trials"] / 2)
    assert row["regret"] == pytest.approx(0) and row["tuner_s"] > 0


@pytest.mark.long
def test_committed_table_holds() -> None:
    """A sample of its entries, simulated again; and the optima are those of the table."""
    times = read_times()
    assert list(times) == list(LAYERS) and sum(map(len, times.values())) == 1745
    rows = json.loads((TIMES.parent / "vta_exhaustive.json").read_text())["figures"]["layers"]
    rng, trials = np.random.default_rng(3), Trials()
    for row, (name, valid) in zip(rows, times.items(), strict=True):
        assert (row["layer"], row["valid"]) == (name, len(valid))
        assert min(valid, key=lambda k: (valid[k], k)) == row["index"]
        assert valid[row["index"]] == pytest.approx(row["optimum_ms"], abs=1e-6)
        if name in ("C7", "C10"):
            task = layer_task(LAYERS[name])
            sample = rng.choice(list(valid), 2).tolist() + rng.integers(len(task.config_space), size=20).tolist()
            for index in (row["index"], *sample):
                ms = outcome(trials, name, task, index).ms
                assert (ms is None) == (index not in valid)
                assert ms is None or ms == pytest.approx(valid[index], abs=1e-6)
