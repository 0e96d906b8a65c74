"""Repetitions of a program are one row: numbers without effect are the least ones."""

from __future__ import annotations

import re

import numpy as np
import pytest

import ansor
from ansor.space.duplicates import canonical
from ansor.space.sample import sample_rows
from ansor.space.spaces import Variant, random_space, random_variant
from ansor.space.states import written
from benchmarks import workloads
from te_lite import ComputeDAG
from te_lite.lowering.lower import unverified
from tests.amount import some
from tests.ansor.sketch_cases import CASES, HARDWARE, dag_of
from tests.ansor.test_population_programs import any_rows, variants
from tests.nonempty import nonempty

C = ansor.Target("c")


COSTLY = {"winograd": some(8, 1)}
"""How many rows of each variant are lowered, where it is not 8: its constant matrices are written out."""


def text(variant: Variant, row: np.ndarray) -> str:
    """The lowered program, with its loops numbered as they come."""
    state, _ = written(variant, row, C, HARDWARE["c"])
    lowered = str(unverified(state, state.dag.tensors))
    names = dict.fromkeys(re.findall(r"(\S+) in \S+\.\.", lowered))
    numbers = {name: f"loop{k}" for k, name in enumerate(names)}
    return re.sub(r"[\w.@]+", lambda word: numbers.get(word[0], word[0]), lowered)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(CASES))
def test_the_program_stays(name: str) -> None:
    rng = np.random.default_rng(0)
    for variant in nonempty(variants(dag_of(name), "c", rng, most=2)):
        n = COSTLY.get(name, 8)
        drawn = sample_rows(variant, n, rng, C, HARDWARE["c"])
        rows = any_rows(variant.space, n, rng, drawn)
        made = canonical(variant, rows, C, HARDWARE["c"])
        for before, after in nonempty(zip(rows, made, strict=True)):
            assert np.array_equal(before, after) or text(variant, before) == text(variant, after)
        np.testing.assert_array_equal(canonical(variant, made, C, HARDWARE["c"]), made)
        np.testing.assert_array_equal([canonical(variant, row[None], C, HARDWARE["c"])[0] for row in rows], made)


@pytest.mark.slow
def test_sketches_that_give_all_lengths_repeat_themselves() -> None:
    """A copied operand: of its rows most are the same programs, and settled ones are told apart by the rows."""
    task = ansor.SearchTask(
        compute_dag=ComputeDAG(workloads.conv2d_layer(1, 7, 7, 512, 512, 3, 3, 1, 1)), target="c",
        hardware_params=HARDWARE["c"],
    )  # fmt: skip
    rng = np.random.default_rng(0)
    policy = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0)
    spaces = [random_space(s, rng, C, HARDWARE["c"]) for s in policy.extra_sketches()]
    chosen = [space for space in spaces if not space.tiles]
    assert chosen
    for space in chosen:
        variant = random_variant(space, rng)
        rows = np.unique(any_rows(space, some(300, 200), rng, sample_rows(variant, 8, rng, C, HARDWARE["c"])), axis=0)
        made = canonical(variant, rows, C, HARDWARE["c"])
        programs = len({text(variant, row) for row in rows})
        assert programs <= len(np.unique(made, axis=0)) < len(rows) / 2
