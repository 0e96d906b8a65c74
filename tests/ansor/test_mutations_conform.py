"""Every mutation of the package, and those that documents show, pass the suite of mutations."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from ansor.evolve import mutation as module
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


class TestTheMutationOfTheFirstChange(MutationSuite):
    """What CONTRIBUTING.md begins with, with the line that makes it right."""

    @pytest.fixture
    def mutation(self) -> Mutation:
        code, limit = shown()
        return swap(code.replace("        return out", f"{limit}        return out"))


def test_the_first_change_is_refused_without_the_limit() -> None:
    code, _ = shown()
    suite = TestTheMutationOfTheFirstChange()
    with pytest.raises(AssertionError, match="rows are no programs"):
        suite.test_rows_stay_programs_and_the_mask_says_which_differ(swap(code), 0)


def shown() -> list[str]:
    """The class, and the line that is added to it."""
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    return re.findall(r"^```py\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def swap(code: str) -> Mutation:
    """The mutation of a text that stands in the module of mutations."""
    names: dict[str, Any] = dict(vars(module))
    exec(code, names)
    made: Mutation = names["Swap"](0.2)
    return made
