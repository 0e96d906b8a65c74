"""The search of `mini_ansor`, its records, and what the package is made of."""

from __future__ import annotations

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mini_ansor
from ansor.core.tasks.catalog import CATALOG
from ansor.core.tasks.workloads import workload_key_to_tensors
from ansor.records.lines import load_records
from mini_ansor.__main__ import WORKLOADS, Model, Search, matmul, step_to_json
from mini_ansor.c import Result
from mini_ansor.features import NAMES, features
from mini_ansor.population import Genes, crossed, evolve, factorizations, mutated, program, random_genes
from mini_ansor.program import GPU, Machine
from mini_ansor.sketch import generate_sketches
from tests.architecture.budget import code_lines

from .translate import steps_of

FOLDER = Path(mini_ansor.__file__).parent
needs_gcc = pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc compiles the programs")


def test_the_package_is_small_and_stands_alone() -> None:
    files = sorted(FOLDER.glob("*.py"))
    assert 10 <= len(files) <= 12
    texts = [file.read_text() for file in files]
    assert sum(map(code_lines, texts)) <= 2300
    assert sum(len(text.splitlines()) for text in texts) <= 3000
    foreign = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                foreign |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                foreign.add(str(node.module).partition(".")[0])
    assert foreign - set(sys.stdlib_module_names) == {"numpy", "xgboost"}


@pytest.mark.long
@needs_gcc
def test_the_engine_reads_its_log(tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    command = [sys.executable, "-m", "mini_ansor", "matmul", "24", "20", "28", "--trials", "8", "--log", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=FOLDER.parent, check=True)
    assert "GFLOP/s" in done.stdout
    records = list(load_records(str(log)))
    assert len(records) == 8
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for (given, result), line in zip(records, lines, strict=True):
        assert given.task.workload_key == '["matmul", 24, 20, 28]'
        assert result.error_no == 0, line
        assert list(result.costs) == pytest.approx(line["r"][0], rel=1e-5)
        assert steps_of(given.state) == line["i"][1][1]


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_are_those_of_the_engine(name: str) -> None:
    from te_lite import ComputeDAG

    from .translate import mini_args

    workload = WORKLOADS[name]
    key = json.dumps(workload.key(*workload.default))
    assert CATALOG[name].key(workload.default) == key
    args = mini_args(ComputeDAG(workload_key_to_tensors(key)))
    ours, theirs = (generate_sketches(a, Machine()) for a in (workload.make(*workload.default), args))
    assert [list(map(step_to_json, s.steps)) for s in ours] == [list(map(step_to_json, s.steps)) for s in theirs]


def test_lengths_divide() -> None:
    assert factorizations(6, 2) == ((1, 1), (1, 2), (1, 3), (1, 6), (2, 1), (2, 3), (3, 1), (3, 2), (6, 1))
    assert max(lengths[-1] for lengths in factorizations(4096, 3)) == 64


@pytest.mark.parametrize("machine", [Machine(), GPU], ids=["c", "cuda"])
def test_children_are_programs_of_their_sketch(machine: Machine) -> None:
    rng = np.random.default_rng(0)
    sketch = generate_sketches(matmul(128, 128, 64), machine)[-1]
    parents = [random_genes(sketch, rng) for _ in range(60)]
    children = [mutated(genes, machine, rng) for genes in parents]
    assert sum(a != b for a, b in zip(parents, children, strict=True)) > 30
    for position in children[0].lengths:
        extent = sketch.steps[position].args[2]
        assert all(extent % np.prod(genes.lengths[position]) == 0 for genes in children)
    a, b = parents[:2]
    both = crossed(a, b, rng)
    assert all(both.lengths[p] in (a.lengths[p], b.lengths[p]) for p in a.lengths)
    states = [state for genes in (*children, both) if (state := program(genes, machine)) is not None]
    assert len(states) > 5
    assert all(features(state, machine).shape[1] == 164 for state in states[:5])


def test_evolution_finds_what_the_score_asks_for() -> None:
    rng, machine = np.random.default_rng(1), Machine()
    sketch = generate_sketches(matmul(64, 64, 64), machine)[0]

    def inner(states: list) -> np.ndarray:  # type: ignore[type-arg]
        return np.array(
            [float(s.stages[2].current[-1].extent == 32) + float(s.stages[2].auto_unroll == 512) for s in states]
        )

    found = evolve([random_genes(sketch, rng) for _ in range(16)], inner, machine, rng, size=32, generations=6)
    assert found[0][0] == 2.0
    assert [score for score, _, _ in found] == sorted([score for score, _, _ in found], reverse=True)
    assert len({str(state) for _, state, _ in found}) == len(found)


@pytest.mark.long
def test_a_seed_decides_what_is_proposed() -> None:
    def proposed() -> list[list[object]]:
        search = Search(matmul(32, 32, 32), Machine(), np.random.default_rng(5))
        for n, scored in enumerate(search.propose(8)):
            search.learn(scored, Result((0.001 + 0.0001 * n,)))
        search.fit()
        return [[step_to_json(step) for step in state.steps] for _, state, _ in search.propose(8)]

    first = proposed()
    assert len(first) == 8
    assert first == proposed()


def test_the_model_ranks_programs_it_has_seen() -> None:
    rng, machine = np.random.default_rng(2), Machine()
    sketches = generate_sketches(matmul(64, 64, 64), machine)
    genes: list[Genes] = [random_genes(sketches[n % 3], rng) for n in range(40)]
    rows = [features(state, machine) for g in genes if (state := program(g, machine)) is not None]
    costs = [1 + float(row[:, NAMES.index("B1.reuse_dis_bytes")].sum()) for row in rows]
    assert len(set(costs)) > 5
    model = Model()
    assert not model.predict(rows).any()
    model.fit(rows, costs)
    order = np.argsort(-model.predict(rows))
    assert costs[order[0]] <= np.quantile(costs, 0.1)
    assert np.corrcoef(model.predict(rows), 1 / np.array(costs))[0, 1] > 0.9
