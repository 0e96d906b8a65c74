"""Search policies: `ask` for candidates, `tell` of results; `search` is the loop around the two.

A policy knows no device: it proposes states and learns from results, whoever measured them.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from te_lite.errors import TeError, require
from te_lite.later import when_called
from te_lite.schedule.state import State
from te_lite.schedule.step import Step

from ..core.errors import PartError, TaskError
from ..core.host.process import collector_paused, keep_freed_memory
from ..core.tasks.measure_values import MeasureInput, MeasureResult, Prediction
from ..core.tasks.task import SearchTask
from ..core.values.checks import chosen_seed, require_part, require_whole
from ..core.values.options import SketchOptions
from ..core.values.parts import asking, called
from ..cost_model import CostModel, RandomModel, XGBModel
from ..cost_model.api import PART, TakesFeatures, is_ready, lacks_features, scores_throughput
from ..cost_model.prior import AnalyticalModel, shipped_model_of
from ..evolve.evolution import EvolveOptions
from ..evolve.mutation import Mutation
from ..evolve.selection import Row
from ..measure.measurer import ProgramMeasurer
from ..records.lines import Record, validated_records
from ..records.of_task import is_of
from ..sketch import PreloadCustomSketchRule, generate_sketches
from ..sketch.generate import extra_rules, extra_sketches, has_own_rules
from .callbacks import PreloadMeasuredStates, init_callbacks
from .description import Uses
from .early_stopping import EarlyStopping
from .exchange import require_told
from .exploration import Chosen, ExplorationRatio, Origin, taken_in_turns, with_scores
from .proposals import Measured, Proposals
from .scoring import Scorer, beside, hand_features, scores_of, unmeasured
from .search_loop import one_round, search_loop
from .sketch_params import DEFAULT_PARAMS, checked_params
from .transfer import Start, Transfer, transfer

checked: Callable[[Sequence[Mutation]], tuple[Mutation, ...]] = when_called("ansor.evolve.checked", "checked")
RANDOM_ROUNDS_AHEAD = 8
PRIOR_TRIALS = 64


class SketchPolicy:
    """Evolutionary search over the sketches of a task (section 5 of the Ansor paper).

    The model is an `XGBModel` unless one is given.

    A round starts from random programs and the best measured ones, breeds them under the score of the cost model, and
    proposes the best that were not measured yet, a share `eps_greedy` of it at random.  A model that has seen nothing
    is stood in for by those that need none (`scoring.py`), and half of the round is random then; where programs of
    similar tasks are known, a quarter of it are theirs, later up to an eighth those of twins.  A program of each sketch
    whose lengths are all decided comes first, whatever the model.  A `RandomModel` makes it all random.
    After a round that brought nothing better come neighbours of the best program.  `extra_sketch_rules` names, with
    commas, the rules beyond Ansor's whose sketches are searched too, or "all" of them (ansor_ext/README.md).
    They are all, but beside custom rules, which are searched alone unless one asks for others.  It prints first which
    it uses.  The parameters carry TVM's names, where TVM has them.  `seed` decides the whole sequence of candidates;
    without one it is drawn and kept in `self.seed`.  `mutations` replaces those of the target.
    Raises TaskError for an unknown parameter, one of the wrong type or out of its range, and a negative seed.
    """

    DEFAULT_PARAMS = DEFAULT_PARAMS

    def __init__(
        self,
        task: SearchTask,
        program_cost_model: CostModel | None = None,
        params: Mapping[str, Any] | None = None,
        seed: int | None = None,
        verbose: int = 1,
        init_search_callbacks: Sequence[PreloadMeasuredStates | PreloadCustomSketchRule] | None = None,
        mutations: Sequence[Mutation] | None = None,
    ) -> None:
        keep_freed_memory()
        require_part(task, SearchTask, "SketchPolicy", "a SearchTask")
        if program_cost_model is not None:
            needed = "a cost model, an object with update and predict, such as ansor.XGBModel(),"
            require_part(program_cost_model, CostModel, "SketchPolicy", needed)
            law = "it has reads_features = True, so predict_features(task, features) is needed"
            require(not lacks_features(program_cost_model), PartError, called(PART, program_cost_model), law)
        self.task = task
        self.seed = chosen_seed("SketchPolicy", seed)
        self.rng = np.random.default_rng(self.seed)
        self.cost_model: CostModel = XGBModel(seed=self.seed) if program_cost_model is None else program_cost_model
        self.params = checked_params(self.DEFAULT_PARAMS, params or {})
        self.options = SketchOptions(**{f: self.params[f] for f in SketchOptions.__dataclass_fields__})
        self.verbose = verbose
        self.mutations = None if mutations is None else checked(mutations)
        if mutations is not None and self._learns_nothing:
            warnings.warn(
                "SketchPolicy: a RandomModel searches without evolution, so no mutation is asked", stacklevel=2
            )
        self.measured: list[Measured] = []
        self.stuck = False
        self.stopping = EarlyStopping()
        self._sketches: list[State] | None = None
        self._proposals: Proposals | None = None
        self._extra: dict[str, list[State]] = {}
        self._announced = self._began = False
        self.exploration = ExplorationRatio()
        self._asked: dict[tuple[Step, ...], tuple[Row, Prediction | None, Origin]] = {}
        self._rounds = 0
        self._similar = transfer()
        self._start: Start | None = None
        given = init_callbacks(init_search_callbacks)
        self.custom_rules = tuple([c for c in given if isinstance(c, PreloadCustomSketchRule)])
        own = bool(self.custom_rules) or has_own_rules(task.target)
        self._extra_off = own and "extra_sketch_rules" not in (params or {})
        for callback in given:
            if not isinstance(callback, PreloadCustomSketchRule):
                callback.prepare(self)

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
                custom_rules=self.custom_rules, policy_context=self if self.custom_rules else None,
                options=self.options,
            )  # fmt: skip
        if print_for_debug:
            for k, sketch in enumerate(self._sketches):
                print(f"=== Sketch {k} ===\n{sketch}")
        return self._sketches

    @property
    def proposals(self) -> Proposals:
        """The programs that were not proposed yet."""
        if self._proposals is None:
            evolution = EvolveOptions(
                size=self.params["evolutionary_search_population"],
                iterations=self.params["evolutionary_search_num_iters"],
                mutation_prob=self.params["evolutionary_search_mutation_prob"],
                crossover_prob=self.params["evolutionary_search_crossover_prob"],
                out=self.params["evolutionary_search_population"],
            )
            sketches = [*self.generate_sketches(), *self.extra_sketches()]
            self._proposals = Proposals(self.task, sketches, self.options, self.rng, evolution, self.mutations)
        return self._proposals

    def extra_sketches(self) -> list[State]:
        """The sketches of the rules beyond Ansor's, made once."""
        rules = () if self._extra_off else extra_rules(self.params["extra_sketch_rules"])
        task = self.task
        for rule in rules:
            if rule not in self._extra:
                self._extra[rule] = extra_sketches(
                    task.compute_dag, task.target, task.hardware_params, self.options, [rule], task.packs
                )
        return [sketch for rule in rules for sketch in self._extra[rule]]

    def announce(self, runner: object) -> None:
        """Print, once, what the search uses (`description.py`)."""
        if self.verbose > 0 and not self._announced:
            self._announced = True
            print(f"SketchPolicy: {self.uses().text(type(runner).__name__)}", flush=True)

    def uses(self) -> Uses:
        """The parts of the search."""
        usual = self.proposals.mutations
        return Uses(
            [rule.rule_name for rule in self.custom_rules],
            self.task.target.kind.name,
            len(self.generate_sketches()),
            {name: len(found) for name, found in self._extra.items()},
            self._extra_off,
            type(self.cost_model).__name__,
            [] if self._learns_nothing else [mutation.name for mutation in usual],
            self.params["evolutionary_search_population"],
            self.params["evolutionary_search_num_iters"],
            self.start.text(),
        )

    def sample_initial_population(self) -> list[State]:
        """Distinct complete programs that were not proposed yet, `sample_init_min_population` of them if there are.

        Looking at them changes nothing: they may still be proposed.
        """
        return [s for s, _ in self.proposals.to_look_at().random(self.params["sample_init_min_population"])]

    @property
    def rounds_ahead(self) -> int:
        """How many rounds may be asked for before the results of the first are told, where the device is free."""
        return RANDOM_ROUNDS_AHEAD if self._learns_nothing else 1

    @property
    def _learns_nothing(self) -> bool:
        return type(self.cost_model) is RandomModel

    def ask(self, n: int) -> list[State]:
        """Up to `n` programs to measure next; none when the space is used up.  Raises TaskError for no integer."""
        require_whole(TaskError, "SketchPolicy.ask", n=n)
        self._began, self._rounds = True, self._rounds + 1
        with collector_paused():
            picked = self._picked(self.proposals, n) if n else []
        for one in picked:
            prediction = Prediction(one.score, self._rounds) if math.isfinite(one.score) else None
            self._asked[one.state.steps] = one.row, prediction, one.origin
        return [one.state for one in picked]

    def predicted(self, states: Sequence[State]) -> list[Prediction | None]:
        """What the model thought of programs that were asked for, and of which nothing was told yet."""
        found = [self._asked.get(state.steps) for state in states]
        return [None if one is None else one[1] for one in found]

    def _picked(self, proposals: Proposals, n: int) -> list[Chosen]:
        """Up to `n` programs; where estimates alone stand in for the model, their choices and others come in turns.

        A score is NaN where nothing has an opinion of a program, and of one drawn at random, of which each would be
        another variant to record.
        """
        if self._learns_nothing:
            return with_scores(proposals.random(n), Origin.DRAWN)
        with asking(PART, self.cost_model, "ready"):
            known = is_ready(self.cost_model)
        score = Scorer(self.task, self.cost_model, self._prior) if known else unmeasured(self.task)
        chance = self._left_to_chance(n, score) if known else n // 2
        elites = self._elites() or list(self.start.rows)
        firsts = proposals.take(*self._of_others(elites, proposals, n))
        firsts += proposals.take(beside(elites[0], n // 4, score), n // 4) if known and self.stuck and elites else []
        firsts += proposals.firsts(n // 2, score) if known else []
        bred = proposals.evolved(max(0, n - chance - len(firsts)), score, elites)
        lasts = [] if known else proposals.firsts((n - len(firsts) - len(bred)) // 2, score)
        scores = scores_of(score, [row for _, row in (*firsts, *bred, *lasts)])
        liked = scores if known else scores[:0]
        best = scores_of(score, self._elites()[: int(len(liked) > 0)])
        self.stopping.asked(liked, best, scores_throughput(self.cost_model))
        drawn = proposals.random(n - len(scores), proposals.worth)
        by_part = np.split(scores, [len(firsts), len(firsts) + len(bred)])
        of_part = ((firsts, Origin.OTHER), (bred, Origin.CHOSEN), (lasts, Origin.OTHER))
        parts = [with_scores(*part, found) for part, found in zip(of_part, by_part, strict=True)]
        parts.append(with_scores(drawn, Origin.DRAWN))
        in_turns = not known and shipped_model_of(self.task) is None
        return [*parts[0], *(taken_in_turns(parts[1:]) if in_turns else chain(*parts[1:]))]

    def _left_to_chance(self, n: int, score: Scorer) -> int:
        """How many of `n` programs are drawn at random: a share `eps_greedy`, more where the scores mean little."""
        least = int(self.params["eps_greedy"] * n)
        if isinstance(self.cost_model, AnalyticalModel):
            return least
        vouched = isinstance(self.cost_model, XGBModel)
        trusted = self.exploration.share(score, self.proposals, self.measured, self.seed, vouched)
        return least + int((n - least) * (1 - trusted))

    @property
    def _prior(self) -> float:
        """How much the analytical model counts beside the learnt one: less, the more was measured.

        On an H200 trees that had seen 32, 64 and 96 programs of a product or convolution put those within four times
        the best in an order of rank correlation 0.29, 0.32 and 0.36, the analytical model 0.52, 0.57 and 0.50, both
        together 0.52, 0.60 and 0.52 (28, 17 and 14 searches).  On a core with AVX-512 trees that had seen 16, 32, 64 or
        96 random programs of eight tasks put 0.70 to 0.80 of the pairs of others in order, both together 0.78 to 0.81.
        """
        return PRIOR_TRIALS / (PRIOR_TRIALS + len(self.measured)) if scores_throughput(self.cost_model) else 0.0

    def _elites(self) -> list[Row]:
        """The best measured programs, best first."""
        most = int(self.params["sample_init_use_measured_ratio"] * self.params["evolutionary_search_population"])
        best = sorted([m for m in self.measured if m.row is not None], key=lambda m: m.cost)[:most]
        return [m.row for m in best if m.row is not None]

    def begin_with(self, similar: Transfer) -> None:
        """Begin with programs of similar tasks, and take over those of twins, unless the search is random."""
        if not self._learns_nothing:
            self._similar, self._start = similar, None

    def _of_others(self, elites: list[Row], proposals: Proposals, n: int) -> tuple[Iterable[Row], int]:
        """The programs of other tasks that a round of `n` may begin with, and how many of them."""
        twins = self._similar.of_twins(self.task, proposals)
        return (twins, min(n // 2, max(1, n // 8))) if self.measured else (elites, n // 4)

    @property
    def start(self) -> Start:
        """What the search begins with."""
        if self._start is None:
            self._start = Start() if self.measured else self._similar.start(self.task, self.proposals)
        return self._start

    # ------------------------------------------------------------------------------------------ learning

    def tell(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Learn from results; the model is trained on them.

        Raises TaskError for inputs of another task, and for results that are none or not one for each of them.
        """
        require_told("SketchPolicy.tell", self.task, inputs, results)
        before = min([m.cost for m in self.measured], default=np.inf)
        origins = [self._asked[inp.steps][2] if inp.steps in self._asked else Origin.OTHER for inp in inputs]
        rows = self._remember(inputs, results)
        self.exploration.told(results, origins)
        self.stopping.told(results)
        self._similar.tell(inputs, results)
        self.stuck = min([m.cost for m in self.measured], default=np.inf) >= before
        if isinstance(self.cost_model, TakesFeatures):
            hand_features(self.cost_model, self.task, inputs, rows)
        self._learn(inputs, results)

    def tell_of_others(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        """Hear of results of tasks like its own, and of twins; others share what they know by themselves."""
        self._similar.tell(inputs, results)

    def nothing_more(self) -> str:
        """Why nothing more is to be had, in a sentence; empty as long as there may be."""
        return self.stopping.text()

    def _learn(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        with asking(PART, self.cost_model, "update"):
            self.cost_model.update(inputs, results)

    def _remember(self, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> list[Row | None]:
        """Where the programs lie in the space."""
        rows: list[Row | None] = []
        for inp, res in zip(inputs, results, strict=True):
            known = self._asked.pop(inp.steps, None)
            row = self.proposals.remember(inp.state) if known is None else known[0]
            rows.append(row)
            if res.ok:
                self.measured.append(Measured(res.cost, inp.steps, row))
        return rows

    def preload_measured_states(self, filename: str | os.PathLike[str], records: Iterable[Record] | None = None) -> int:
        """Take what a log holds of this task as measured, and give the number of records that were.

        Records of this workload count, measured for this target (`ansor.records.of_task`); failed ones too, so that
        they are not tried again.
        `records` are those of the log that are believed, where they were read already.
        """
        count, self._began = 0, True
        for inp, res in validated_records(filename) if records is None else records:
            if not is_of(inp, self.task):
                continue
            try:
                same = inp.task.compute_dag is self.task.compute_dag
                mine = MeasureInput(self.task, inp.state) if same else MeasureInput(self.task, steps=inp.steps)
                self._remember([mine], [res])
            except TeError:
                continue
            count += 1
        if self.verbose > 0:
            print(f"SketchPolicy: loaded {count} measured programs of this task from {filename}", flush=True)
        return count

    def choice(self) -> State | None:
        """The program that the model likes best of those that were not measured; it may still be proposed."""
        return next((one.state for one in self._picked(self.proposals.to_look_at(), 1)), None)

    def continue_from(self, filename: Path, records: Sequence[Record]) -> None:
        """Go on where a log stops, and learn from it, unless the policy has begun or was given a log already."""
        if not self._began and self.preload_measured_states(filename, records):
            self._learn([inp for inp, _ in records], [res for _, res in records])

    def search(
        self, num_measure_trials: int, early_stopping: int | str | None, num_measures_per_round: int,
        measurer: ProgramMeasurer, time_limit: float | None = None,
    ) -> State | None:  # fmt: skip
        """Ask, measure and tell for `num_measure_trials` new trials; the best state of this run, or None.

        With 0 trials nothing is measured and the state that the model likes best is returned; it may still be proposed.
        """
        if num_measure_trials == 0:
            return self.choice()
        return search_loop(
            self, self.task, num_measure_trials, early_stopping, num_measures_per_round, measurer,
            self.params["retry_search_one_round_on_empty"], time_limit,
        )  # fmt: skip

    def continue_search_one_round(
        self, num_measure: int, measurer: ProgramMeasurer
    ) -> tuple[list[MeasureInput], list[MeasureResult]]:
        """One round of ask, measure, tell."""
        return one_round(self, self.task, num_measure, measurer)
