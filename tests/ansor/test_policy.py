"""Policies: ask and tell, seeds, resuming, early stopping."""

import pytest

import ansor
from te_lite.step import Pragma
from tests.ansor.fake_measure import fake_measurer


def texts(states):
    return [str(s.dag.infer_bound_from_state(s)) for s in states]


def test_same_seed_same_candidates(matmul_task):
    for model in (ansor.RandomModel, ansor.XGBModel):
        first, again, other = (ansor.SketchPolicy(matmul_task, model(seed=1), seed=k, verbose=0) for k in (7, 7, 8))
        asked = [p.ask(12) + p.ask(5) for p in (first, again, other)]
        assert asked[0] == asked[1] != asked[2]
        assert len(set(texts(asked[0]))) == 17
    assert 1 <= ansor.SketchPolicy(matmul_task, verbose=0).seed <= 2**30


def test_search_counts_and_stops(matmul_task, tmp_path):
    log = tmp_path / "log"
    measurer = fake_measurer(lambda k: None if k % 5 == 0 else 1e-3 * (1 + abs(k - 13)), [ansor.RecordToFile(log)])
    best = ansor.SketchPolicy(matmul_task, seed=1, verbose=0).search(20, None, 8, measurer)
    inputs, results = ansor.RecordReader(log).read_lines()
    assert measurer.count == len(inputs) == 20 and sum(not r.ok for r in results) == 4
    assert best == inputs[13].state and measurer.best[matmul_task.workload_key].trial == 14
    measurer = fake_measurer(lambda k: 1e-3)
    ansor.SketchPolicy(matmul_task, seed=1, verbose=0).search(100, 6, 4, measurer)
    assert measurer.count == 8
    assert ansor.SketchPolicy(matmul_task, seed=1, verbose=0).search(0, None, 8, measurer) is not None
    assert ansor.SketchPolicy(matmul_task, seed=1, verbose=0).search(4, None, 2, fake_measurer(lambda k: None)) is None


def test_resume_measures_nothing_twice(matmul_task, tmp_path, capsys):
    log = tmp_path / "log"
    for _ in range(3):
        callbacks = [ansor.PreloadMeasuredStates(log)] if log.exists() else []
        policy = ansor.SketchPolicy(matmul_task, seed=1, init_search_callbacks=callbacks)
        policy.search(15, None, 8, fake_measurer(lambda k: 1e-3, [ansor.RecordToFile(log)]))
    inputs, _ = ansor.RecordReader(log).read_lines()
    assert len(set(texts([i.state for i in inputs]))) == len(inputs) == 45
    assert "loaded 30 measured programs" in capsys.readouterr().out


def test_a_small_space_ends(tmp_path):
    task = ansor.SearchTask("matmul", (1, 1, 2), target="c")
    measurer = fake_measurer(lambda k: 1e-3)
    ansor.SketchPolicy(task, seed=1, verbose=0).search(10_000, None, 64, measurer)
    assert 0 < measurer.count < 10_000


def test_parameters_are_checked(matmul_task):
    for params in ({"nonsense": 1}, {"eps_greedy": 1}, {"max_vectorize_size": 4.0}):
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
    from te_lite.replay import apply

    rule = ansor.PreloadCustomSketchRule(
        lambda policy, state, k: 2 if k == 2 else 0,
        lambda policy, state, k: [[apply(state, Pragma(k, 0, "auto_unroll_max_step$16")), -1]],
    )
    policy = ansor.SketchPolicy(matmul_task, init_search_callbacks=[rule], verbose=0)
    (sketch,) = policy.generate_sketches()
    assert sketch.stages[2].auto_unroll_max_step == 16
