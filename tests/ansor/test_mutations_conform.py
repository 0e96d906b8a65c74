"""Every mutation of the package passes the suite of mutations."""

from __future__ import annotations

import pytest

from ansor.evolve.mutation import CPU_MUTATIONS, GPU_MUTATIONS, Mutation
from tests.conformance.mutation import MutationSuite


def name_of(mutation: Mutation) -> str:
    return mutation.name


class TestCpuMutations(MutationSuite):
    @pytest.fixture(params=CPU_MUTATIONS, ids=name_of)
    def mutation(self, request: pytest.FixtureRequest) -> Mutation:
        made: Mutation = request.param
        return made


class TestGpuMutations(MutationSuite):
    target = "cuda"

    @pytest.fixture(params=GPU_MUTATIONS, ids=name_of)
    def mutation(self, request: pytest.FixtureRequest) -> Mutation:
        made: Mutation = request.param
        return made
