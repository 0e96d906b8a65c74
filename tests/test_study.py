"""The study's variants on measured programs, its statistics, and that a study goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ansor.core.errors import TaskError
from ansor.offline.contest import Run, candidates_of, contest
from benchmarks import study, study_variants
from benchmarks.study_beside import TORCH, by_operator, relative_speeds
from benchmarks.study_live import Case, cases, latencies, operators_of
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
    curves = study.qualities(runs, 3)
    assert curves.tolist() == [[0.75, 1.0, 1.0]] * 2
    values = np.random.default_rng(0).normal(5, 2, (400, 1))
    mean, low, high = study.band(values, np.random.default_rng(1))[:, 0]
    half = 1.96 * values.std() / 20
    assert mean == values.mean() and abs(mean - low - half) < 0.1 * half and abs(high - mean - half) < 0.1 * half
    assert not len(latencies(Path("no such log"), Case("none", ())))


def test_cases_are_those_of_the_paper() -> None:
    """Ten operators of four shapes and two subgraphs, each at batch 1 and 16; a pattern chooses."""
    assert len(operators_of("operators")) == 10 * 4 * 2 and len(operators_of("subgraphs")) == 4
    chosen = cases("operators", "c", (), ("NRM0_*", "C1D3_b1", "NRM0_b1"))
    assert [case.name for case in chosen] == ["NRM0_b1", "NRM0_b16", "C1D3_b1"]
    assert chosen[1].tasks[0].compute_dag.tensors[0].shape == (16, 256, 256)
    with pytest.raises(TaskError, match="fits no case of operators, which are C1D0_b1"):
        cases("operators", "c", (), ("C1D0_b2",))


def test_what_is_kept_becomes_a_table_and_a_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A seed that is not through for all cases of the first one is left out, and so is a case of some variants only."""
    seconds = {"Full": [4e-6, 2e-6], "Random": [4e-6, 4e-6]}
    runs: list[tuple[Any, Any]] = [(("machine",), "a machine")]
    for case in ("GMM0_b1", "GMM1_b1", "NRM0_b16"):
        runs += [((variant, case, 0, 2), values) for variant, values in seconds.items()]
        runs += [((TORCH, case), {"ours": 1e-6, TORCH: 2e-6})]
    runs += [(("Full", "DEP0_b1", 0, 2), [1e-6, 1e-6]), (("Full", "GMM0_b1", 1, 2), [1e-6, 1e-6])]
    lines = [json.dumps({"key": key, "values": values}) for key, values in runs]
    (tmp_path / "operators_c.jsonl").write_text("\n".join(lines) + "\n")
    words = (
        f"study operators --device c --table --usual Full Random --trials 2 --out {tmp_path} --json {tmp_path}/x.json"
    )
    monkeypatch.setattr("sys.argv", words.split())
    study.main()
    found = json.loads((tmp_path / "x.json").read_text())
    assert found["machine"] == "a machine" and found["commit"] == found["date"] == "unknown"
    assert found["figures"]["seeds"] == [0]
    assert found["figures"]["best us, by task"]["GMM1_b1"] == {"Full": 2.0, "Random": 4.0}
    speeds = {"Full": 1.0, "Random": 0.5, TORCH: 0.5}
    assert found["figures"]["speed, by operator"] == {"GMM 1": pytest.approx(speeds), "NRM 16": pytest.approx(speeds)}
    said = capsys.readouterr().out
    assert "DEP" not in said and "2 of 8 runs are left out" in said and "one seed" in said
    assert (tmp_path / "operators_c.svg").read_text().count("PyTorch: 0.50") == 2


def kept_in(folder: Path, made: Mapping[str, str], seconds: Mapping[tuple[str, int], Sequence[float]]) -> None:
    """Adds runs of the ablation's convolution on a CPU, by variant and seed, to what a folder keeps."""
    lines = [
        json.dumps({"key": (name, "C2D3_b16", seed, len(found)), "values": found, "made": made})
        for (name, seed), found in seconds.items()
    ]
    with open(folder / "ablation_c.jsonl", "a") as file:
        file.write("".join(line + "\n" for line in lines))


def table_of(folder: Path, *words: str) -> dict[str, Any]:
    """What the JSON file of the table of a folder says."""
    argv = ["study", "ablation", "--device", "c", "--table", "--out", str(folder), "--json", str(folder / "x.json")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [*argv, *words])
        study.main()
    found: dict[str, Any] = json.loads((folder / "x.json").read_text())
    return found


def test_a_table_says_where_when_and_of_what_commits_its_runs_are(tmp_path: Path, capsys: Any) -> None:
    """Those that it leaves out have no say, nor has the day on which it is made; variants and trials are those kept."""
    first = {"machine": "one", "date": "2026-11-20T10:00:00", "commit": "aaa"}
    second = {"machine": "one", "date": "2026-11-21T10:00:00", "commit": "bbb"}
    kept_in(tmp_path, first, {("Full", 0): [4e-6, 2e-6], ("Random", 0): [4e-6, 4e-6]})
    found = table_of(tmp_path)
    assert {name: found[name] for name in first} == first
    assert found["figures"]["trials"] == 2 and found["figures"]["seeds"] == [0]
    assert found["figures"]["after trials"] == {"Full": {"2": [1.0]}, "Random": {"2": [0.5]}}
    assert "[" not in capsys.readouterr().out
    kept_in(tmp_path, second, {("Full", 1): [4e-6, 4e-6], ("Random", 1): [4e-6, 2e-6], ("Full", 2): [1e-6, 1e-6]})
    found = table_of(tmp_path)
    assert found == {**found, "machine": "one", "commit": "aaa, bbb", "date": f"{first['date']} to {second['date']}"}
    assert found["figures"]["seeds"] == [0, 1] and found["figures"]["best us, by task"]["C2D3_b16"]["Full"] == 3.0
    assert found["figures"]["after trials"]["Full"]["2"] == [0.75, 0.5, 1.0]
    assert "1 of 5 runs are left out" in (said := capsys.readouterr().out) and "means over 2 seeds" in said
    assert table_of(tmp_path, "--usual", "Full")["figures"]["seeds"] == [0, 1, 2]


def test_a_table_of_what_is_not_there_says_what_is(tmp_path: Path) -> None:
    made = {"machine": "one", "date": "2026-11-20T10:00:00", "commit": "aaa"}
    kept_in(tmp_path, made, {("Full", 0): [4e-6, 2e-6], ("Random", 1): [4e-6, 4e-6]})
    laws = {"": "with 2 trials by all of Full, Random, got .*1 of Full with 2, 1 of Random with 2",
            "--trials 9": "with 9 trials", "--usual LimitedSpace": "by all of LimitedSpace"}  # fmt: skip
    for words, law in laws.items():
        with pytest.raises(TaskError, match=law):
            table_of(tmp_path, *words.split())
    (tmp_path / "ablation_c.jsonl").unlink()
    with pytest.raises(TaskError, match=r"with 256 trials .*runs='none'"):
        table_of(tmp_path)


def test_what_is_measured_says_on_what(tmp_path: Path) -> None:
    kept = study.Kept(tmp_path / "runs.jsonl", "this machine")
    kept.put(("Full", "a", 0, 1), [1.0])
    made = study.Kept(tmp_path / "runs.jsonl").made([("Full", "a", 0, 1)])
    assert made["machine"] == "this machine" and made["commit"] != study.UNKNOWN and made["date"] > "2026"


def test_speeds_of_operators_by_hand() -> None:
    us = {"C2D0_b1": {"Full": 2.0, "Mine": 1.0}, "C2D1_b1": {"Full": 1.0, "Mine": 4.0}}
    turns = {"C2D0_b1": {"ours": 3.0, TORCH: 12.0}, "C2D1_b1": {"ours": 2.0, TORCH: 1.0}}
    speeds = relative_speeds(us, turns)
    assert speeds["C2D0_b1"] == {"Full": 0.5, "Mine": 1.0, TORCH: 0.125}
    assert speeds["C2D1_b1"] == {"Full": 0.5, "Mine": 0.125, TORCH: 1.0}
    assert by_operator(speeds) == {"C2D 1": pytest.approx({"Full": 0.5, "Mine": 0.125**0.5, TORCH: 0.125**0.5})}
    assert TORCH not in relative_speeds(us, {"C2D0_b1": turns["C2D0_b1"]})["C2D0_b1"]


@pytest.mark.parametrize(
    ("words", "law"),
    [("networks", "name --device c or cuda"), ("cost-model --device c", "is run on --device offline")],
)
def test_what_a_study_refuses(words: str, law: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("sys.argv", ["study", *words.split(), "--out", str(tmp_path / "out")])
    with pytest.raises(TaskError, match=law):
        study.main()
    assert not (tmp_path / "out").exists()
