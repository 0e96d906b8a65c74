"""Some descriptions from beginning to end in one process: their programs are compiled together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from te_lite.errors import TeError
from te_lite.meaning.interp import run as interpret

from . import run_c, run_cuda
from .bounded import Value, compared
from .description import Dag
from .guarded import Arrays
from .numpy_oracle import evaluate
from .outcome import Finding, Outcome, raised
from .programs import TARGETS, Candidate, Programs
from .random_inputs import random_inputs

INTERPRETED = 5
"""Of how many candidates one is also run by the interpreter."""
Watch = Callable[[str], None]


@dataclass(frozen=True)
class Job:
    """A description to try: `seed` draws its programs, `count` for each of `targets`."""

    seed: int
    dag: Dag
    targets: tuple[str, ...] = TARGETS
    count: int = 1


@dataclass(eq=False)
class _Case:
    """A candidate with its oracle."""

    candidate: Candidate
    outcome: Outcome
    names: list[str]
    inputs: Mapping[str, Any]
    wanted: Mapping[str, Value]

    def arrays(self) -> Arrays:
        return Arrays(self.candidate.func.args, self.names, self.inputs)

    def found(self, kind: str, phase: str, text: str) -> None:
        c = self.candidate
        self.outcome.findings.append(Finding(kind, phase, c.target, text, c.steps))

    def check(self, phase: str, arrays: Arrays) -> None:
        """Count a right program, or note what is wrong."""
        text = arrays.wrong(self.wanted)
        if text:
            self.found("mismatch", phase, text)
        else:
            self.outcome.programs[phase] += 1


def run_batch(jobs: Sequence[Job], watch: Watch = lambda text: None) -> list[Outcome]:
    """The outcome of each job.  `watch` is told what is being done, so that a hang can be named."""
    outcomes, cases = [], []
    for k, job in enumerate(jobs):
        watch(f"seed {job.seed}: oracle")
        outcome = Outcome(job.seed)
        outcomes.append(outcome)
        inputs = random_inputs(job.dag)
        wanted = evaluate(job.dag, inputs)
        outcome.compared = float(np.mean([compared(wanted[name]) for name in job.dag.outputs]))
        names = [*[i.name for i in job.dag.inputs], *job.dag.outputs]

        def told(text: str, seed: int = job.seed) -> None:
            watch(f"seed {seed}: {text}")

        for c in Programs(job.dag, outcome, job.seed, told).all(job.targets, job.count):
            number = 100 * k + c.number + 50 * (c.target == "cuda")
            named = replace(c, number=number, func=replace(c.func, name=f"p{number}"))
            cases.append(_Case(named, outcome, names, inputs, wanted))
    _interpreted([case for k, case in enumerate(cases) if k % INTERPRETED == 0], watch)
    with tempfile.TemporaryDirectory(prefix="whole_way_") as folder:
        _compiled([c for c in cases if c.candidate.target == "c"], Path(folder), watch, jobs[0].seed)
    _emulated([c for c in cases if c.candidate.target == "cuda"], watch)
    return outcomes


def _interpreted(cases: list[_Case], watch: Watch) -> None:
    for case in cases:
        watch(f"seed {case.outcome.seed}: interpreter")
        arrays = case.arrays()
        try:
            interpret(case.candidate.func, arrays.views)
        except TeError as error:
            case.found("verifier", "interpreter", str(error))
        except Exception as error:
            case.found("exception", "interpreter", raised(error))
        else:
            case.check("interpreter", arrays)


def _emitted(cases: list[_Case], emit: Callable[[Any], Any]) -> list[tuple[_Case, Any]]:
    out = []
    for case in cases:
        try:
            out.append((case, emit(case.candidate.func)))
        except TeError as error:
            case.outcome.refuse("emit", case.candidate.target, error)
        except Exception as error:
            case.found("exception", "emit", raised(error))
    return out


def _compiled(cases: list[_Case], folder: Path, watch: Watch, seed: int) -> None:
    emitted = _emitted(cases, lambda func: run_c.text_of(func, seed))
    if not emitted:
        return
    watch("C compiler")
    texts = [(case.candidate.name, text) for case, text in emitted]
    libraries = run_c.compile_texts(texts, folder, optimised=seed // 4 % 6 == 0)
    for (case, _), library in zip(emitted, libraries, strict=True):
        if isinstance(library, str):
            case.found("compiler", "C compiler", library)
            continue
        watch(f"seed {case.outcome.seed}: run C {case.candidate.steps}")
        arrays = case.arrays()
        run_c.call(library, case.candidate.name, arrays.views)
        case.check("C", arrays)


def _emulated(cases: list[_Case], watch: Watch) -> None:
    emitted = _emitted(cases, run_cuda.program_of)
    watch("emulator")
    arrays = [case.arrays() for case, _ in emitted]
    given = [(program, list(a.views)) for (_, program), a in zip(emitted, arrays, strict=True)]
    for (case, _), a, wrong in zip(emitted, arrays, run_cuda.run_cases(given, 30.0), strict=True):
        if wrong is None:
            case.check("emulator", a)
        else:
            case.found("emulator", "emulator", wrong)
