"""Logs as arrays, and contests of searchers on them: what a searcher is told, and what the figures mean."""

from __future__ import annotations

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

import ansor
from ansor.cli.main import main
from ansor.cli.searchers import DATA
from ansor.cost_model.features import FEATURES
from ansor.features import SCHEMA, state_features
from ansor.offline.contest import Candidates, candidates_of, contest
from ansor.offline.matrix import Matrix, load_matrix, matrices_of
from ansor.offline.searchers import PEERS, SEARCHERS, Chance, Tpe
from ansor.records.lines import load_records
from ansor.space.step_decisions import numbers_of

LOG = Path(__file__).parents[2] / "examples" / "logs" / "norm_every_program.json"


def made_up(n: int = 60) -> Matrix:
    """Programs of four numbers and two structures; the time grows with the distance from one of them, one failed."""
    rng = np.random.default_rng(0)
    numbers = 2 ** rng.integers(0, 6, (n, 4))
    decisions = np.column_stack([rng.integers(0, 2, n), numbers]).astype(np.int32)
    far = np.abs(np.log2(numbers) - (4, 1, 2, 3)).sum(axis=1) + 2 * decisions[:, 0]
    seconds = 1e-3 * 1.3**far * rng.uniform(1, 1.01, n)
    seconds[n // 2] = np.inf
    features = np.column_stack([np.log2(numbers), far % 3]).astype(np.float32)
    names, errors = np.array(["structure", "i 1", "i 2", "j 1", "j 2"]), np.zeros(n, np.int32)
    return Matrix(
        features, np.array([*"abcde"]), np.array([""] * 5), "1", decisions, names, seconds, errors,
        "key", "c", "made up", "log",
    )  # fmt: skip


class Listed:
    """A searcher that asks for what it is given."""

    def __init__(self, *asked: Any) -> None:
        self.asked, self.told = list(asked), list[Any]()

    def __call__(self, known: Candidates, rng: np.random.Generator) -> Listed:
        return self

    def ask(self, n: int) -> Any:
        return self.asked.pop(0)

    def tell(self, numbers: Any, seconds: Any) -> None:
        self.told.append((list(numbers), list(seconds)))


def test_the_arrays_say_what_the_log_says(tmp_path: Path) -> None:
    lines = [line for line in LOG.read_text().splitlines() if not line.startswith("#")][:12]
    log, out = tmp_path / "log.json", tmp_path / "log.npz"
    log.write_text("\n".join(lines) + "\n")
    assert main(["dataset", str(log)]) == 0
    (made,), records = matrices_of(log), list(load_records(log))
    read = load_matrix(out)
    for name in Matrix.__dataclass_fields__:
        assert np.array_equal(getattr(read, name), getattr(made, name)), name
    assert read.seconds.tolist() == [result.cost for _, result in records] and not read.errors.any()
    assert read.columns.tolist() == [c.name for c in SCHEMA] and read.units.tolist() == [c.unit for c in SCHEMA]
    for k, (inp, _) in enumerate(records):
        rows = state_features(inp.state, inp.task.hardware_params)
        assert np.allclose(read.features[k], rows.sum(axis=0), rtol=1e-6)
        held = [value for value in read.decisions[k, 1:].tolist() if value]
        assert sorted(held) == sorted(value for value in numbers_of(inp.steps) or [] if value)


def test_packages_that_are_missing(monkeypatch: Any) -> None:
    """One sentence says which, and how it is installed."""
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ansor.core.errors.TaskError, match=r"optuna is not installed; .* pip install optuna"):
        Tpe(candidates_of(made_up()), np.random.default_rng(0))


def test_figures_of_a_run_by_hand() -> None:
    matrix = replace(made_up(5), seconds=np.array([4.0, np.inf, 2.0, 1.0, 1.05]))
    searcher = Listed([1], [0, 2], [4, 3])
    run = contest(searcher, matrix, candidates_of(matrix), 0, 5, 2)
    assert searcher.told == [([1], [np.inf]), ([0, 2], [4.0, 2.0]), ([4, 3], [1.05, 1.0])]
    assert np.allclose(run.quality, [0, 1 / 4, 1 / 2, 1 / 1.05, 1])
    assert [run.trials_to(share) for share in (0.5, 0.9, 0.99)] == [3, 4, 5] and run.area == run.quality.mean()
    short = contest(Listed([0, 2]), matrix, candidates_of(matrix), 0, 2, 2)
    assert short.trials_to(0.9) == 3


@pytest.mark.parametrize("name", [name for name in SEARCHERS if name not in PEERS])
def test_a_searcher_tries_every_program_once_and_a_seed_decides(name: str) -> None:
    matrix = made_up()
    known = candidates_of(matrix)
    runs = [contest(SEARCHERS[name], matrix, known, seed, 1000, 7) for seed in (3, 3, 4)]
    assert sorted(runs[0].seconds) == sorted(matrix.seconds) and np.isinf(matrix.seconds).sum() == 1
    assert runs[0].seconds.tolist() == runs[1].seconds.tolist() != runs[2].seconds.tolist()


@pytest.mark.parametrize("name", [name for name in SEARCHERS if name not in ("random", *PEERS)])
def test_searchers_beat_chance_where_neighbours_are_alike(name: str) -> None:
    matrix = made_up(400)
    known = candidates_of(matrix)
    area = [np.mean([contest(m, matrix, known, s, 96, 8).area for s in range(8)]) for m in (SEARCHERS[name], Chance)]
    assert area[0] > area[1]


def test_tpe_begins_with_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    """As all others do: its model is asked once something was tried."""
    optuna = MagicMock()
    optuna.create_study.return_value.ask.return_value.params = {}
    monkeypatch.setitem(sys.modules, "optuna", optuna)
    candidates = Candidates("task", np.zeros((40, 1)), np.array(["x"]), np.arange(80).reshape(40, 2),
                                    np.array(["structure", "a"]))  # fmt: skip
    tpe, chance = (SEARCHERS[name](candidates, np.random.default_rng(1)) for name in ("tpe", "random"))
    first = tpe.ask(16)
    assert len(set(first)) == 16 and not optuna.create_study.return_value.ask.called
    assert max(first) - min(first) > 20 and len(chance.ask(16)) == 16
    tpe.tell(first, np.ones(16))
    assert len(tpe.ask(4)) == 4 and optuna.create_study.return_value.ask.call_count == 4


def test_optuna_as_a_peer() -> None:
    """It tries every program once, a seed decides, and it beats chance where neighbours are alike."""
    pytest.importorskip("optuna")
    matrix, many = made_up(40), made_up(200)
    runs = [contest(Tpe, matrix, candidates_of(matrix), seed, 1000, 9).seconds.tolist() for seed in (3, 3, 4)]
    assert sorted(runs[0]) == sorted(matrix.seconds) and runs[0] == runs[1] != runs[2]
    area = [np.mean([contest(m, many, candidates_of(many), s, 64, 8).area for s in range(3)]) for m in (Tpe, Chance)]
    assert area[0] > area[1]


@pytest.mark.parametrize(
    ("asked", "law"),
    [
        ([], "1 to 2 numbers"), ([0, 1, 2], "1 to 2 numbers"), ([[0]], "1 to 2 numbers"), ([0.0], "integers from 0"),
        ([99], "integers from 0 to 4"), ([-1], "integers from 0"), ([1, 1], "tried twice"), (None, "1 to 2 numbers"),
    ],
)  # fmt: skip
def test_what_a_searcher_must_not_ask(asked: Any, law: str) -> None:
    matrix = made_up(5)
    with pytest.raises(ansor.core.errors.PartError, match=law):
        contest(Listed(asked), matrix, candidates_of(matrix), 0, 4, 2)
    with pytest.raises(ansor.core.errors.PartError, match="tried twice"):
        contest(Listed([0], [0]), matrix, candidates_of(matrix), 0, 4, 2)


@pytest.mark.long
def test_a_searcher_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any, refused: Any) -> None:
    """It is run in a process of its own; that it raises, or is not there, is one sentence."""
    made_up().save(tmp_path / "made_up.npz")
    (tmp_path / "bench_mine.py").write_text(
        "class Mine:\n"
        "    def __init__(self, candidates, rng):\n"
        "        self.order = list(range(len(candidates)))\n"
        "    def ask(self, n):\n"
        "        return [self.order.pop() for _ in range(n)]\n"
        "    def tell(self, numbers, seconds):\n"
        "        pass\n"
        "class Bad(Mine):\n"
        "    def tell(self, numbers, seconds):\n"
        "        raise ValueError('no\\nidea')\n"
        "class Gone(Mine):\n"
        "    def tell(self, numbers, seconds):\n"
        "        __import__('os')._exit(1)\n"
    )
    monkeypatch.chdir(tmp_path)
    words = ["--data", str(tmp_path), "--seeds", "1", "--trials", "20"]
    assert main(["bench-search", "bench_mine.py:Mine", "--beside", *words]) == 0
    out = capsys.readouterr().out
    assert "made_up" in out and "bench_mine.py:Mine" in out
    for word, more, text in (
        ("bench_mine.py:Bad", words, "searcher Bad: tell raised ValueError: no idea"),
        ("bench_mine.py:Gone", words, "a process that ran one has ended"),
        ("bench_mine.py:Mien", words, "has no class 'Mien'"),
        ("genetics", words, "did you mean genetic?"),
        ("random", ["--data", str(tmp_path / "none")], "no such file"),
        ("random", [*words, "--seeds", "0"], "--seeds: at least 1 is needed"),
        ("random", ["--data", str(tmp_path / "bench_mine.py")], "`ansor dataset LOG` wrote is needed"),
    ):
        refused(["bench-search", word, "--beside", *more], text)


def test_what_dataset_refuses(tmp_path: Path, refused: Any) -> None:
    (tmp_path / "empty.json").write_text("")
    for log, output, text in (
        (LOG, "x.csv", "must end in .npz"),
        (tmp_path / "empty.json", "x.npz", "has no program"),
        (LOG, "none/x.npz", "none"),
    ):
        refused(["dataset", str(log), "-o", str(tmp_path / output)], text, 1, 2, 3)


def test_the_data_of_the_checkout_is_what_its_logs_say() -> None:
    """Times by the log's text, and columns by the schema; a few programs' features are computed anew."""
    files = sorted(DATA.glob("*.npz"))
    assert files and sum(path.stat().st_size for path in DATA.iterdir()) < 12e6
    for file in files:
        read, log = load_matrix(file), file.with_suffix(".json.gz")
        assert read.version == FEATURES.schema, f"{file.name}: run `ansor dataset` on its log again"
        with gzip.open(log, "rt") as lines:
            records = [json.loads(line) for line in lines if line.startswith("{")]
        told = [record["r"][0][0] if record["r"][1] == 0 else np.inf for record in records]
        assert read.seconds.tolist() == told and len({json.dumps(record["i"]) for record in records}) == len(told)
    inp, _ = next(iter(load_records(log)))
    rows = state_features(inp.state, inp.task.hardware_params)
    assert np.allclose(read.features[0], rows.sum(axis=0), rtol=1e-6)
