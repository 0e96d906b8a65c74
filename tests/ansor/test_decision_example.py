"""The decision that docs/replacing_a_part.md adds: drawn, made into states, parsed back, mutated, and right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codegen_c
import te_lite as te
from ansor.evolve.mutation import Change, mutate, mutations_of
from ansor.sketch import generate_sketches
from ansor.space.decisions.decision import Decision
from ansor.space.decisions.draw import Matrix
from ansor.space.decisions.table import DECISIONS, Decisions
from ansor.space.limits import fits
from ansor.space.programs import programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import Variant, random_space, random_variant
from ansor.space.states import concrete, parse
from te_lite import ComputeDAG
from te_lite.meaning.interp import run
from te_lite.schedule.loop_steps import FreePragma
from te_lite.schedule.state import State
from tests.ansor import sketch_cases
from tests.ansor.sketch_cases import HARDWARE
from tests.documents import blocks
from tests.nonempty import nonempty
from tests.oracle import Oracle

ROOT = Path(__file__).parents[2]
SMALL = {
    "matmul": ComputeDAG(sketch_cases.matmul(24, 40, 16)),
    "conv2d": ComputeDAG(sketch_cases.conv2d_bn_relu(2, 9, 9, 4, 8, 3, 2, 1)),
    "softmax": ComputeDAG(sketch_cases.softmax(3, 70)),
}
CASES = pytest.mark.parametrize(("name", "target"), [(name, target) for name in SMALL for target in ("c", "cuda")])


def example() -> Decision[Any]:
    """The class of the section on decisions, made from its text."""
    page = (ROOT / "docs" / "replacing_a_part.md").read_text()
    (block,) = blocks(page.partition("## Adding a decision\n")[2].partition("\n## ")[0])
    names: dict[str, Any] = {}
    exec(block.code, names)
    made: Decision[Any] = names["Explicit"]()
    return made


EXPLICIT = example()
TABLE: Decisions = (*DECISIONS, EXPLICIT)


def variants(name: str, target: str, rng: np.random.Generator) -> tuple[list[State], list[Variant]]:
    """The sketches of a workload, and a variant of each whose space has the decision."""
    sketches = generate_sketches(SMALL[name], target, HARDWARE[target])
    spaces = [random_space(sketch, rng, target, HARDWARE[target], decisions=TABLE) for sketch in sketches]
    return sketches, [random_variant(space, rng) for space in spaces]


def columns(variant: Variant) -> dict[int, int]:
    return {c.stage: c.column for c in variant.space.of(EXPLICIT.name)}


def explicit(state: State) -> dict[int, int]:
    """What the steps of a state say, by stage."""
    return {s.stage: int(s.text[-1]) for s in state.steps if isinstance(s, FreePragma)}


@CASES
def test_rows_become_states_and_come_back(name: str, target: str) -> None:
    rng, hardware = np.random.default_rng(0), HARDWARE[target]
    sketches, found = variants(name, target, rng)
    seen: set[int] = set()
    for variant in found:
        rows = sample_rows(variant, 6, rng, target, hardware)
        again, changed = Change(EXPLICIT, 1.0).apply(rows, variant.space, rng)
        assert changed.all() and ((rows != again).sum(axis=1) == 1).all()
        for row in (*rows, *again):
            state = concrete(variant, row, target, hardware)
            said = explicit(state)
            assert all(row[column] == said[k] for k, column in columns(variant).items() if k in said)
            back = parse(sketches, state.steps, target, hardware, decisions=TABLE)
            assert back is not None and back[0] == variant and concrete(*back, target, hardware) == state
            assert all(back[1][column] == said.get(k, 0) for k, column in columns(variant).items())
            assert (np.delete(back[1] == row, list(columns(variant).values()))).all()
            assert parse(sketches, state.steps, target, hardware) is None
            seen |= set(said.values())
    assert seen == {0, 1}


@pytest.mark.slow
@CASES
@pytest.mark.one_in(2)
def test_mutated_programs_compute_the_workload(name: str, target: str) -> None:
    rng, hardware = np.random.default_rng(1), HARDWARE[target]
    oracle = Oracle(SMALL[name], np.random.default_rng(7))
    for variant in nonempty(variants(name, target, rng)[1][:2]):
        rows, _ = mutate(
            sample_rows(variant, 64, rng, target, hardware), variant.space, mutations_of(target, TABLE), rng
        )
        assert_lanes(variant, rows, target)
        for row in nonempty(rows[fits(programs(variant, rows, target, hardware), hardware)][:2]):
            state = concrete(variant, row, target, hardware)
            assert oracle.mismatch(te.lower(state), compiled if target == "c" else run) is None


def assert_lanes(variant: Variant, rows: Matrix, target: str) -> None:
    lanes = programs(variant, rows, target, HARDWARE[target]).of(EXPLICIT.name)
    assert lanes and all((rows[:, columns(variant)[k]] == numbers).all() for k, numbers in lanes.items())


def compiled(func: te.LoweredFunc, args: object) -> None:
    codegen_c.build(func)(*args)  # type: ignore[misc]


def test_its_mutation_has_its_weight() -> None:
    for target in ("c", "cuda"):
        *usual, last = mutations_of(target, TABLE)
        assert tuple(usual) == mutations_of(target) and (last.name, last.weight) == ("explicit", 0.02)
