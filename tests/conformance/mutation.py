"""What every mutation must do.  A test file inherits the suite and supplies one fixture:

class TestMyMutation(MutationSuite):
    target = "cuda"

    @pytest.fixture
    def mutation(self):
        return MyMutation()
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from ansor.evolve.evolution import EvolveOptions, evolve
from ansor.evolve.mutation import Mutation
from ansor.space.spaces import Group, Space
from tests.ansor.evolution_cases import random_group, random_rows, space_named, valid, variants_of
from tests.nonempty import nonempty

ROWS = 97
NAMES = {
    "c": (("matmul", 64), ("prime_matmul", 3), ("winograd", 16), ("min", 3)),
    "cuda": (("prime_matmul", 8), ("strided_conv", 4), ("winograd", 64), ("softmax", 64)),
}


@cache
def spaces(target: str) -> tuple[Space, ...]:
    """Spaces of both small and large tiles, some without any."""
    return tuple([space_named(name, target, innermost) for name, innermost in NAMES[target]])


class MutationSuite:
    """`target`: the programs that it is for."""

    target = "c"

    @pytest.fixture
    def mutation(self) -> Mutation:
        raise NotImplementedError("supply a fixture `mutation`")

    def test_it_has_a_name_and_a_weight(self, mutation: Mutation) -> None:
        assert isinstance(mutation.name, str) and mutation.name
        assert 0 < mutation.weight < math.inf

    @pytest.mark.parametrize("seed", range(3))
    def test_rows_stay_programs_and_the_mask_says_which_differ(self, mutation: Mutation, seed: int) -> None:
        for space in nonempty(spaces(self.target)):
            rng = np.random.default_rng(seed)
            rows = random_rows(space, ROWS, rng)
            changed, mask = mutation.apply(rows.copy(), space, rng)
            assert changed.shape == rows.shape and changed.dtype == rows.dtype == np.int64
            assert mask.shape == (ROWS,) and mask.dtype == np.bool_
            bad = changed[~valid(space, changed)].tolist()
            assert not bad, f"{len(bad)} rows are no programs, the first is {bad[0]} of {space.parts}"
            wrong = np.flatnonzero((changed != rows).any(axis=1) != mask).tolist()
            assert not wrong, (
                f"the mask must be True for the rows that differ and for no others, it is wrong for {wrong}"
            )

    def test_the_rows_it_is_given_are_left_alone(self, mutation: Mutation) -> None:
        for space in nonempty(spaces(self.target)):
            rows = random_rows(space, ROWS, np.random.default_rng(0))
            before = rows.copy()
            changed, _ = mutation.apply(rows, space, np.random.default_rng(1))
            assert (rows == before).all(), "apply writes over the rows it is given; begin with rows.copy()"
            changed += 1
            assert (rows == before).all(), "apply gives the very rows it is given; begin with rows.copy()"

    def test_it_changes_something_somewhere(self, mutation: Mutation) -> None:
        rng = np.random.default_rng(0)
        changes = any(mutation.apply(random_rows(s, ROWS, rng), s, rng)[1].any() for s in spaces(self.target))
        assert changes, f"no row of {NAMES[self.target]} was changed"

    def test_a_seed_decides(self, mutation: Mutation) -> None:
        for space in nonempty(spaces(self.target)):
            rows = random_rows(space, ROWS, np.random.default_rng(0))
            first, again = [mutation.apply(rows, space, np.random.default_rng(5)) for _ in range(2)]
            same = (first[0] == again[0]).all() and (first[1] == again[1]).all()
            assert same, "the same rows and the same seed gave other rows; draw from `rng` only"

    def test_a_single_row(self, mutation: Mutation) -> None:
        for space in nonempty(spaces(self.target)):
            rng = np.random.default_rng(0)
            changed, mask = mutation.apply(random_rows(space, 1, rng), space, rng)
            assert changed.shape == (1, space.width) and mask.shape == (1,)

    def test_evolution_goes_on_with_it_alone(self, mutation: Mutation) -> None:
        """Also where it has nothing to do: then nothing new comes, and nothing breaks."""
        for space in nonempty(spaces(self.target)):
            rng = np.random.default_rng(0)
            (variant,) = variants_of(space, 1)
            weights = rng.random(space.width)

            def score(group: Group, weights: np.ndarray = weights) -> np.ndarray:
                return np.asarray(np.log2(group.rows + 1) @ weights)

            options = EvolveOptions(size=32, out=16, parents=8, iterations=2)
            found = evolve((random_group(variant, 32, rng),), score, rng, [mutation], options)
            assert found and valid(space, np.stack([c.row for c in found])).all()
