"""Programs of one description as the search makes them, looked at on the way: features, estimates, verifier."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

import te_lite as te
from ansor.sketch import generate_sketches
from ansor.sketch.generate import extra_sketches
from ansor.space.programs import Programs as Lanes
from ansor.space.programs import programs
from ansor.space.sample import sample_rows
from ansor.space.spaces import random_space, random_variant
from ansor.space.states import concrete
from te_lite.errors import TeError
from te_lite.printing.dag_json import dag_from_json, dag_to_json
from te_lite.schedule.replay import replay
from te_lite.schedule.step import from_json, to_json
from te_lite.verify.verify import verify
from tests.schedule_fuzz import Fuzzer

from .build import tensors
from .description import Dag
from .lanes import CHECKS, HARDWARE
from .outcome import Finding, Outcome, raised

TARGETS = ("c", "cuda")
ROWS = 5


@dataclass(frozen=True)
class Candidate:
    """A lowered program of a description; `number` makes its name."""

    target: str
    func: te.LoweredFunc
    steps: str
    number: int

    @property
    def name(self) -> str:
        return f"p{self.number}"


class Stop(Exception):
    """A phase ended with a refusal or a finding."""


Watch = Callable[[str], None]


def _sent(dag: te.ComputeDAG) -> te.ComputeDAG:
    """A computation that has travelled as JSON, as it does to workers and to other machines."""
    return dag_from_json(json.loads(json.dumps(dag_to_json(dag), allow_nan=False)))


class Programs:
    """Draws the programs of one description; what happens on the way is written to `outcome`."""

    def __init__(self, dag: Dag, outcome: Outcome, seed: int, watch: Watch, every: int = 4) -> None:
        self.description, self.outcome, self.seed, self.watch, self.every = dag, outcome, seed, watch, every
        self.steps = ""

    def all(self, targets: tuple[str, ...], count: int = 1) -> list[Candidate]:
        """The candidates for some targets, `count` from the search space each, and some schedules drawn freely."""
        try:
            dag = self.phase("build", "any", lambda: te.ComputeDAG(tensors(self.description)))
            if self.seed % self.every == 0:
                dag = self.phase(
                    "build", "any", lambda: dag_from_json(json.loads(json.dumps(dag_to_json(dag), allow_nan=False)))
                )
        except Stop:
            return []
        return [c for target in targets for c in self._of_target(dag, target, count)]

    def phase(self, name: str, target: str, action: Callable[[], object]) -> object:
        """Run one phase.  Raises Stop after a refusal, which is counted, or an exception, which is a finding."""
        self.watch(f"{name} ({target})")
        try:
            return action()
        except TeError as error:
            if name != "verify":
                self.outcome.refuse(name, target, error)
                raise Stop from error
            self.found("verifier", name, target, str(error))
        except Stop:
            raise
        except Exception as error:
            self.found("exception", name, target, raised(error))
        raise Stop

    def found(self, kind: str, phase: str, target: str, text: str) -> None:
        self.outcome.findings.append(Finding(kind, phase, target, text, self.steps))

    def _of_target(self, dag: te.ComputeDAG, target: str, count: int) -> Iterator[Candidate]:
        rng = np.random.default_rng([self.seed, TARGETS.index(target)])
        for k in range(count):
            with suppress(Stop):
                yield self._candidate(target, self._searched(dag, target, rng), 2 * k)
            if rng.random() < 0.4:
                with suppress(Stop):
                    yield self._candidate(target, self._scheduled(dag, target, rng), 2 * k + 1)

    # -------------------------------------------------------------------------------- where programs come from

    def _searched(self, dag: te.ComputeDAG, target: str, rng: np.random.Generator) -> te.State:
        """A row of a variant of a sketch, ordinary or extra, whose features and estimate were compared in lanes."""
        self.steps = ""
        hardware = HARDWARE[target]
        sketches = self.phase("sketches", target, lambda: generate_sketches(dag, target, hardware))
        if rng.random() < 0.4:
            extra = self.phase("extra sketches", target, lambda: extra_sketches(dag, target, hardware))
            sketches = extra or sketches
        sketch = sketches[int(rng.integers(len(sketches)))]

        def rows():
            variant = random_variant(random_space(sketch, rng, target, hardware), rng)
            return variant, sample_rows(variant, ROWS, rng, target, hardware)

        variant, drawn = self.phase("sample", target, rows)
        if not len(drawn):
            self.outcome.refusals[f"sample ({target}): no row was found that a block has shared memory for"] += 1
            raise Stop
        lane = int(rng.integers(len(drawn)))
        state = self.phase("state", target, lambda: concrete(variant, drawn[lane], target, hardware))
        self.steps = json.dumps([to_json(s) for s in state.steps])
        for _ in range(2 if self.seed % self.every == 1 else 1):
            many = self.phase("sample", target, lambda: programs(variant, drawn, target, hardware))
            self._compare_lanes(many, state, lane, target)
        return state

    def _scheduled(self, dag: te.ComputeDAG, target: str, rng: np.random.Generator) -> te.State:
        self.steps = ""

        def drawn() -> te.State:
            fuzzer = Fuzzer(dag, rng, target == "cuda")
            fuzzer.most_iterations = 40_000
            return fuzzer.draw(60)[0]

        return self.phase("draw a schedule", target, drawn)

    def _compare_lanes(self, many: Lanes, state: te.State, lane: int, target: str) -> None:
        for name, check in CHECKS.items():
            for text in self.phase(name, target, lambda check=check: list(check(many, {lane: state}, target))):
                self.found("features", name, target, text)

    # ---------------------------------------------------------------------------------------- to loop programs

    def _candidate(self, target: str, state: te.State, number: int) -> Candidate:
        steps = [to_json(s) for s in state.steps]
        self.steps = json.dumps(steps)
        again = self.phase("replay", target, lambda: replay(state.dag, map(from_json, steps)))
        if again != state:
            self.found("exception", "replay", target, "the replay of the steps is another state")
        func = self.phase("lower", target, lambda: te.lower(again))
        self.phase("verify", target, lambda: verify(func))
        named = replace(func, name=f"p{number}")
        return Candidate(target, named, self.steps, number)
