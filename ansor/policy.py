"""Search policies: `ask` for candidates, `tell` of results; `search` is the loop around the two.

A policy knows no device: it proposes states and learns from results, whoever measured them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from te_lite.errors import TeError
from te_lite.state import State

from .annotate import sample
from .cost_model import CostModel, RandomModel
from .errors import TaskError
from .measure.api import MeasureInput, MeasureResult
from .options import SketchOptions
from .records import RecordReader, target_kind
from .search import one_round, search_loop
from .sketch import PreloadCustomSketchRule, generate_sketches
from .task import SearchTask

if TYPE_CHECKING:
    from .callbacks import PreloadMeasuredStates
    from .measure.measurer import ProgramMeasurer

MISSES_IN_A_ROW = 200


class EmptyPolicy:
    """The smallest policy: it knows one program, the unscheduled one."""

    def __init__(self, task: SearchTask, init_search_callbacks: Sequence[Any] | None = None) -> None:
        self.task = task
        self._asked = False

    def ask(self, n: int) -> list[State]:
        asked, self._asked = self._asked, True
        return [] if asked or n < 1 else [self.task.compute_dag.init_state]

    def tell(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Nothing is learnt."""

    def search(
        self, num_measure_trials: int, early_stopping: int | None, num_measures_per_round: int,
        measurer: ProgramMeasurer,
    ) -> State | None:  # fmt: skip
        """Measure, and give the best state."""
        return search_loop(self, self.task, num_measure_trials, early_stopping, num_measures_per_round, measurer)


class SketchPolicy:
    """Samples complete programs from the sketches of a task, at random, and never the same one twice.

    A round draws at least `sample_init_min_population` distinct programs and keeps those that the cost model scores
    best, a share `eps_greedy` at random.  The parameters carry TVM's names (spec autoscheduler 6.1).  `seed` decides
    the whole sequence of candidates; without one it is drawn and kept in `self.seed`.
    Raises TaskError for an unknown parameter or one of the wrong type.
    """

    DEFAULT_PARAMS: Mapping[str, Any] = {
        "eps_greedy": 0.05,
        "retry_search_one_round_on_empty": 1,
        "sample_init_min_population": 50,
        "sample_init_use_measured_ratio": 0.2,
        "evolutionary_search_population": 2048,
        "evolutionary_search_num_iters": 4,
        "evolutionary_search_mutation_prob": 0.85,
        "cpu_multi_level_tiling_structure": "SSRSRS",
        "gpu_multi_level_tiling_structure": "SSSRRSRS",
        "max_innermost_split_factor": 64,
        "max_vectorize_size": 16,
        "disable_change_compute_location": 0,
    }

    def __init__(
        self,
        task: SearchTask,
        program_cost_model: CostModel | None = None,
        params: Mapping[str, Any] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[PreloadMeasuredStates | PreloadCustomSketchRule] | None = None,
    ) -> None:
        self.task = task
        self.seed = int(np.random.default_rng().integers(1, 2**30)) if seed is None else seed
        self.rng = np.random.default_rng(self.seed)
        self.cost_model: CostModel = RandomModel(self.seed) if program_cost_model is None else program_cost_model
        self.params = self._checked(params or {})
        self.options = SketchOptions(**{f: self.params[f] for f in SketchOptions.__dataclass_fields__})
        self.verbose = verbose
        self.custom_rules: list[PreloadCustomSketchRule] = []
        self.seen: set[str] = set()
        self.measured: list[tuple[float, State]] = []
        self._sketches: list[State] | None = None
        for callback in init_search_callbacks or ():
            if isinstance(callback, PreloadCustomSketchRule):
                self.custom_rules.append(callback)
            else:
                callback.prepare(self)

    def _checked(self, params: Mapping[str, Any]) -> dict[str, Any]:
        for name, value in params.items():
            if name not in self.DEFAULT_PARAMS:
                raise TaskError(f"SketchPolicy: unknown parameter {name!r}, known: {', '.join(self.DEFAULT_PARAMS)}")
            wanted = type(self.DEFAULT_PARAMS[name])
            if type(value) is not wanted:
                raise TaskError(f"SketchPolicy: parameter {name!r} must be of type {wanted.__name__}, got {value!r}")
        return {**self.DEFAULT_PARAMS, **params}

    @property
    def search_task(self) -> SearchTask:
        """The task, under TVM's name."""
        return self.task

    def set_verbose(self, verbose: int) -> None:
        self.verbose = verbose

    # ---------------------------------------------------------------------------------------- proposing

    def generate_sketches(self, print_for_debug: bool = False) -> list[State]:
        """The sketches of the task, made once; `print_for_debug` prints them."""
        if self._sketches is None:
            self._sketches = generate_sketches(
                self.task.compute_dag, self.task.target, self.task.hardware_params,
                custom_rules=tuple(self.custom_rules), policy_context=self if self.custom_rules else None,
                options=self.options,
            )  # fmt: skip
        if print_for_debug:
            for k, sketch in enumerate(self._sketches):
                print(f"=== Sketch {k} ===\n{sketch}")
        return self._sketches

    def sample_initial_population(self) -> list[State]:
        """Distinct complete programs, `sample_init_min_population` of them if the space has so many."""
        return [s for s, _ in self._draw(self.params["sample_init_min_population"])]

    def _draw(self, n: int) -> list[tuple[State, str]]:
        """Up to `n` distinct programs that were not proposed yet, with their printed forms."""
        sketches = self.generate_sketches()
        found: dict[str, State] = {}
        misses = 0
        while len(found) < n and misses < MISSES_IN_A_ROW:
            sketch = sketches[int(self.rng.integers(len(sketches)))]
            state = sample(sketch, self.task.target, self.task.hardware_params, self.rng, self.options)
            text = None if state is None else self._text(state)
            misses += 1
            if state is not None and text is not None and text not in self.seen and text not in found:
                found[text] = state
                misses = 0
        return [(state, text) for text, state in found.items()]

    @staticmethod
    def _text(state: State) -> str | None:
        """The printed form with all extents, which tells programs apart; None for a state without bounds."""
        try:
            return str(state.dag.infer_bound_from_state(state))
        except TeError:
            return None

    def ask(self, n: int) -> list[State]:
        """Up to `n` programs to measure next; none when the space is used up."""
        drawn = self._draw(max(n, self.params["sample_init_min_population"]) if n > 0 else 0)
        if len(drawn) > n:
            scores = self.cost_model.predict(self.task, [s for s, _ in drawn])
            by_score = [int(k) for k in np.argsort(-np.asarray(scores), kind="stable")]
            greedy = by_score[: n - int(self.params["eps_greedy"] * n)]
            rest = [k for k in range(len(drawn)) if k not in greedy]
            chosen = greedy + [int(k) for k in self.rng.choice(rest, n - len(greedy), replace=False)]
            drawn = [drawn[k] for k in chosen]
        self.seen.update(text for _, text in drawn)
        return [state for state, _ in drawn]

    # ------------------------------------------------------------------------------------------ learning

    def tell(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from results; the model is trained on them."""
        self._remember(inputs, results)
        self.cost_model.update(inputs, results)

    def _remember(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        for inp, res in zip(inputs, results, strict=True):
            text = self._text(inp.state)
            if text is not None:
                self.seen.add(text)
            if res.ok:
                self.measured.append((res.cost, inp.state))

    def preload_measured_states(self, filename: str | os.PathLike[str]) -> int:
        """Take what a log holds of this task as measured, and give the number of records that were.

        Lines of the same workload and target kind count; failed ones too, so that they are not tried again.
        """
        count = 0
        kind = self.task.target.kind.name
        for inp, res in RecordReader(filename):
            if inp.task.workload_key != self.task.workload_key or target_kind(inp.task) != kind:
                continue
            try:
                self._remember([MeasureInput(self.task, MeasureInput(self.task, steps=inp.steps).state)], [res])
            except TeError:
                continue
            count += 1
        if self.verbose > 0:
            print(f"SketchPolicy: loaded {count} measured programs of this task from {filename}", flush=True)
        return count

    def search(
        self, num_measure_trials: int, early_stopping: int | None, num_measures_per_round: int,
        measurer: ProgramMeasurer,
    ) -> State | None:  # fmt: skip
        """Ask, measure and tell for `num_measure_trials` new trials; the best state of this run, or None.

        With 0 trials nothing is measured and the state that the model likes best is returned.
        """
        if num_measure_trials == 0:
            return next(iter(self.ask(1)), None)
        return search_loop(
            self, self.task, num_measure_trials, early_stopping, num_measures_per_round, measurer,
            self.params["retry_search_one_round_on_empty"],
        )  # fmt: skip

    def continue_search_one_round(
        self, num_measure: int, measurer: ProgramMeasurer
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """One round of ask, measure, tell."""
        return one_round(self, self.task, num_measure, measurer)
