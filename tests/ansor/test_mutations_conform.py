"""Every mutation of the package, and the one that its document shows, passes the suite of mutations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

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


class TestTheMutationOfThePage(MutationSuite):
    @pytest.fixture
    def mutation(self) -> Mutation:
        page = (Path(__file__).parents[2] / "docs/replacing_a_part.md").read_text()
        (code,) = re.findall(r"```python\n([^`]*class Serial[^`]*)```", page)
        names: dict[str, Any] = {}
        exec(code, names)
        made: Mutation = names["Serial"]()
        return made
