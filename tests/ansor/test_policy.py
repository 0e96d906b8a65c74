"""Policies: ask and tell, seeds, resuming, early stopping."""

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cost_model.prior import AnalyticalModel
from ansor.evolve.evolution import EvolveOptions
from ansor.policy.scoring import Scorer
from ansor.space.spaces import Group
from te_lite.schedule.loop_steps import Pragma
from te_lite.schedule.replay import replay
from tests.ansor.fake_measure import fake_measurer


def texts(states):
    return [str(s.dag.infer_bound_from_state(s)) for s in states]


def test_same_seed_same_candidates(matmul_task):
    for model in (ansor.RandomModel, ansor.XGBModel):
        first, again, other = (ansor.SketchPolicy(matmul_task, model(seed=1), seed=k, verbose=0) for k in (7, 7, 8))
        asked = [p.ask(12) + p.ask(5) for p in (first, again, other)]
        assert asked[0] == asked[1] != asked[2]
        assert len(set(texts(asked[0]))) == 17
    assert 1 <= ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), verbose=0).seed <= 2**30


def test_search_counts_and_stops(matmul_task, tmp_path):
    log = tmp_path / "log"
    measurer = fake_measurer(lambda k: None if k % 5 == 0 else 1e-3 * (1 + abs(k - 13)), [ansor.RecordToFile(log)])
    best = ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), seed=1, verbose=0).search(20, None, 8, measurer)
    inputs, results = ansor.RecordReader(log).read_lines()
    assert measurer.count == len(inputs) == 20 and sum(not r.ok for r in results) == 4
    assert best == inputs[13].state and measurer.best_of(matmul_task).trial == 14
    measurer = fake_measurer(lambda k: 1e-3)
    ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), seed=1, verbose=0).search(100, 6, 4, measurer)
    assert measurer.count == 8
    assert (
        ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), seed=1, verbose=0).search(0, None, 8, measurer)
        is not None
    )
    assert (
        ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), seed=1, verbose=0).search(
            4, None, 2, fake_measurer(lambda k: None)
        )
        is None
    )


def test_resume_measures_nothing_twice(matmul_task, tmp_path, capsys):
    log = tmp_path / "log"
    for _ in range(3):
        callbacks = [ansor.PreloadMeasuredStates(log)] if log.exists() else []
        policy = ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), seed=1, init_search_callbacks=callbacks)
        policy.search(15, None, 8, fake_measurer(lambda k: 1e-3, [ansor.RecordToFile(log)]))
    inputs, _ = ansor.RecordReader(log).read_lines()
    assert len({i.steps for i in inputs}) == len(inputs) == 45
    assert "loaded 30 measured programs" in capsys.readouterr().out


def test_a_small_space_ends(tmp_path):
    task = ansor.SearchTask("matmul", (1, 1, 2), target="c")
    measurer = fake_measurer(lambda k: 1e-3)
    ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0).search(10_000, None, 64, measurer)
    assert 0 < measurer.count < 10_000


def test_how_populations_are_bred_is_a_parameter(matmul_task):
    params = {"evolutionary_search_crossover_prob": 0.75, "evolutionary_search_mutation_prob": 0.5}
    bred = ansor.SketchPolicy(matmul_task, params=params, verbose=0).proposals.evolution
    assert (bred.crossover_prob, bred.mutation_prob) == (0.75, 0.5)
    usual = ansor.SketchPolicy(matmul_task, verbose=0).proposals.evolution
    assert (usual.crossover_prob, usual.mutation_prob) == (EvolveOptions.crossover_prob, EvolveOptions.mutation_prob)


def test_parameters_are_checked(matmul_task):
    nan = float("nan")
    for params in (
        {"nonsense": 1}, {"eps_greedy": 1}, {"max_vectorize_size": 4.0}, {"eps_greedy": 1.5}, {"eps_greedy": nan},
        {"sample_init_use_measured_ratio": -0.1}, {"evolutionary_search_mutation_prob": 1.01},
        {"evolutionary_search_population": 0}, {"evolutionary_search_num_iters": -1},
        {"evolutionary_search_crossover_prob": -0.1},
        {"sample_init_min_population": 0}, {"retry_search_one_round_on_empty": -1},
    ):  # fmt: skip
        with pytest.raises(ansor.TaskError, match="SketchPolicy: "):
            ansor.SketchPolicy(matmul_task, params=params)
    policy = ansor.SketchPolicy(matmul_task, params={"cpu_multi_level_tiling_structure": "SRS"}, verbose=0)
    assert 20 < len(policy.sample_initial_population()) <= 50
    usual = ansor.SketchPolicy(matmul_task).generate_sketches()
    assert [str(s) for s in policy.generate_sketches()] != [str(s) for s in usual]


def test_empty_policy(matmul_task):
    measurer = fake_measurer(lambda k: 1e-3)
    assert ansor.EmptyPolicy(matmul_task).search(10, None, 4, measurer) == matmul_task.compute_dag.init_state
    assert measurer.count == 1


def test_custom_sketch_rule(matmul_task):
    from te_lite.schedule.replay import apply

    rule = ansor.PreloadCustomSketchRule(
        lambda policy, state, k: 2 if k == 2 else 0,
        lambda policy, state, k: [[apply(state, Pragma(k, 0, "auto_unroll_max_step$16")), -1]],
    )
    policy = ansor.SketchPolicy(matmul_task, init_search_callbacks=[rule], verbose=0)
    (sketch,) = policy.generate_sketches()
    assert sketch.stages[2].auto_unroll_max_step == 16


class Liking:
    """A cost model of one's own: it likes programs in the order in which it meets them."""

    def __init__(self, extra=0):
        self.extra = extra

    def update(self, inputs, results): ...

    def predict(self, task, states):
        return np.arange(len(states) + self.extra, dtype=float)


SMALL = {"evolutionary_search_population": 32, "evolutionary_search_num_iters": 1}


def small_policy(task, model, **params):
    return ansor.SketchPolicy(task, model, {**SMALL, **params}, seed=1, verbose=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "params",
    [
        {"eps_greedy": 1.0}, {"eps_greedy": 0.0}, {"sample_init_use_measured_ratio": 1.0},
        {"evolutionary_search_population": 1}, {"evolutionary_search_num_iters": 0},
        {"evolutionary_search_crossover_prob": 1.0}, {"evolutionary_search_mutation_prob": 0.0},
        {"sample_init_use_measured_ratio": 0.0},
    ],
)  # fmt: skip
def test_parameters_at_the_ends_of_their_ranges(matmul_task, params):
    policy, measurer = small_policy(matmul_task, Liking(), **params), fake_measurer(lambda k: 1e-3)
    policy.search(24, None, 12, measurer)
    assert measurer.count == 24


def test_seeds_are_checked(matmul_task):
    for make in (
        lambda s: ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), seed=s),
        lambda s: ansor.XGBModel(seed=s),
        lambda s: ansor.RandomModel(seed=s),
        lambda s: ansor.TaskScheduler([matmul_task], seed=s),
        lambda s: ansor.task_scheduler.make_search_policies("default", None, [matmul_task], 4, 0, seed=s),
    ):
        for bad in (-1, 1.5, "7", True):
            with pytest.raises(ansor.TaskError, match="the seed must be an integer of at least 0, got seed="):
                make(bad)
        make(np.int64(3))


def test_looking_at_programs_does_not_use_them_up(matmul_task):
    a = te.placeholder((1,), name="A")
    b = te.compute((1,), lambda i: a[i] + 1.0, name="B")
    tiny = ansor.SearchTask(compute_dag=te.ComputeDAG([a, b]), target="c")
    for model in (ansor.RandomModel(1), Liking()):
        policy = small_policy(tiny, model)
        seen = policy.sample_initial_population()
        assert seen and len(set(texts(seen))) == len(seen)
        assert policy.search(0, None, 4, fake_measurer(lambda k: 1e-3)) is not None
        assert set(texts(seen)) <= set(texts(policy.ask(4)))
        assert policy.sample_initial_population() == [] == policy.ask(4)
    policy = small_policy(matmul_task, ansor.RandomModel(1))
    asked = policy.ask(7)
    assert not {s.steps for s in asked} & {s.steps for s in policy.sample_initial_population()}


def test_custom_rules_count_wherever_they_are_listed(matmul_task, tmp_path):
    log = tmp_path / "log"
    measurer = fake_measurer(lambda k: 1e-3, [ansor.RecordToFile(log)])
    ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), seed=1, verbose=0).search(3, None, 3, measurer)
    asked = []
    rule = ansor.PreloadCustomSketchRule(lambda policy, state, k: asked.append(k) or 0, lambda policy, state, k: [])
    counts = []
    for callbacks in ([rule, ansor.PreloadMeasuredStates(log)], [ansor.PreloadMeasuredStates(log), rule]):
        asked.clear()
        policy = ansor.SketchPolicy(
            matmul_task, ansor.RandomModel(0), seed=1, verbose=0, init_search_callbacks=callbacks
        )
        policy.ask(2)
        counts.append(len(asked))
        assert len(policy.measured) == 3
    assert counts[0] == counts[1] > 0


def test_what_cannot_be_used_is_one_sentence(matmul_task, tmp_path):
    recorder = ansor.RecordToFile(tmp_path / "log")
    for callbacks in ([recorder], ansor.PreloadMeasuredStates(tmp_path / "log"), [3]):
        with pytest.raises(ansor.TaskError, match="init_search_callbacks: a list of objects with a method prepare"):
            ansor.SketchPolicy(matmul_task, init_search_callbacks=callbacks)
    nothing = ansor.PreloadCustomSketchRule(lambda policy, state, k: 2, lambda policy, state, k: [])
    policy = ansor.SketchPolicy(
        matmul_task, params={"extra_sketch_rules": ""}, init_search_callbacks=[nothing], verbose=0
    )
    with pytest.raises(ansor.TaskError, match="sketch rule 'CustomSketchRule': where it applies it must give a list"):
        policy.ask(1)
    for extra in (1, -1):
        with pytest.raises(ansor.TaskError, match=r"Liking: one score per program is needed, for \d+ programs, got"):
            small_policy(matmul_task, Liking(extra)).ask(4)


def test_only_a_random_model_itself_is_not_asked_for_scores(matmul_task):
    class Zero(ansor.RandomModel):
        asked = 0

        def predict_features(self, task, features):
            self.asked += 1
            return np.zeros(len(features))

    policy = small_policy(matmul_task, Zero(1))
    assert policy.ask(4) and policy.cost_model.asked > 0 and policy.rounds_ahead == 1
    assert small_policy(matmul_task, ansor.RandomModel(1)).rounds_ahead == 8
    assert small_policy(matmul_task, Liking()).rounds_ahead == 1


def test_preloading_replays_each_line_once(matmul_task, tmp_path, monkeypatch):
    log = tmp_path / "log"
    measurer = fake_measurer(lambda k: 1e-3, [ansor.RecordToFile(log)])
    ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), seed=1, verbose=0).search(5, None, 5, measurer)
    replayed = []

    def spy(dag, steps):
        replayed.append(steps)
        return replay(dag, steps)

    for module in ("ansor.core.tasks.measure_values", "ansor.policy.proposals"):
        monkeypatch.setattr(f"{module}.replay", spy, raising=False)
    policy = ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), verbose=0)
    assert policy.preload_measured_states(log) == 5 == len(replayed) == len(policy.measured)
    inputs, results = ansor.RecordReader(log).read_lines()
    assert policy.preload_measured_states("nowhere", zip(inputs, results, strict=True)) == 5
    ansor.XGBModel().add(inputs, results)
    assert len(replayed) == 10


@pytest.mark.long
def test_every_sketch_is_judged_by_a_good_program_of_its_own():
    """There are dozens of sketches, and a population has room for four."""
    task = ansor.SearchTask("matmul", (256, 256, 256), target="cuda -model=H200")
    policy = ansor.SketchPolicy(task, params={"evolutionary_search_population": 2048}, seed=3, verbose=0)
    proposals, score = policy.proposals, Scorer(task, AnalyticalModel())

    picked = [row for _, row in proposals.to_look_at().firsts(1000, score)]
    sketches = [proposals.sketches.index(variant.space.sketch) for variant, _ in picked]
    assert len(set(sketches)) == len(sketches) > len(proposals.sketches) - 4 > 20
    values = []
    for variant, row in picked:
        first, *others = score(Group(variant, np.stack([row, *proposals._sample(variant, 32).rows])))
        assert np.mean(first >= np.array(others)) > 0.8
        values.append(first)
    assert values == sorted(values, reverse=True)
    first, more = proposals.firsts(3, score), proposals.firsts(1000, score)
    assert len(first) == 3 and len(first) + len(more) == len(picked) and not proposals.firsts(1, score)
