"""The model that comes with the package: it reads today's features, and speaks where nothing was measured."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.cost_model import AnalyticalModel, XGBModel, prior, xgb
from ansor.cost_model.features import FEATURES
from ansor.cost_model.trees import load_trees
from ansor.offline.analytical import AnalyticalRunner
from ansor.policy.default_schedule import default_states
from ansor.policy.scoring import WEIGHT_OF_ESTIMATE, Scorer, unmeasured
from ansor.sketch.plain import plain_state
from ansor.space.spaces import Group
from ansor_ext.shipped_model import trees as shipped_trees
from benchmarks import shipped_model
from tests.ansor.search_case import conv_task
from tests.workloads import matmul, softmax, winograd

MOST_BYTES = 2_000_000


@pytest.mark.parametrize("path", sorted(shipped_trees.FOLDER.glob("*.ubj")), ids=lambda path: path.stem)
def test_it_is_small_and_reads_the_features_of_today(path: Path) -> None:
    assert path.stat().st_size <= MOST_BYTES
    trees = load_trees(path, FEATURES.schema)
    assert trees.trained_on > 10_000, "a change of the features needs `benchmarks.shipped_model`"


def test_both_estimates_are_multiplied_on_a_gpu_and_one_is_taken_elsewhere() -> None:
    task = conv_task("cuda")
    proposals = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0).proposals
    variant, row = proposals.random(1)[0][1]
    group = Group(variant, row[None])
    model = prior.shipped_model(task.target)
    assert model is not None
    own, estimate = Scorer(task, model)(group), Scorer(task, AnalyticalModel())(group)
    np.testing.assert_allclose(np.log(unmeasured(task)(group)), np.log(own) + WEIGHT_OF_ESTIMATE * estimate, rtol=1e-9)
    assert isinstance(unmeasured(conv_task("c")).model, AnalyticalModel)


def test_one_of_other_features_is_told_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cuda.ubj").write_bytes(b"no trees")
    monkeypatch.setattr(shipped_trees, "FOLDER", tmp_path)
    assert prior.shipped_model(ansor.Target("cuda")) is None and "is not used" in caplog.text


@pytest.mark.long
def test_computations_are_held_out_whole(tmp_path: Path) -> None:
    logs = []
    for name, tensors in (("a", matmul(16, 16, 16)), ("b", matmul(8, 16, 32)), ("c", softmax(8, 16))):
        runner, log = AnalyticalRunner(), tmp_path / f"{name}.json"
        task = ansor.SearchTask(compute_dag=te.ComputeDAG(tensors), target="c")
        given = ansor.TuningOptions(20, None, 20, 0, runner.builder(), runner, [ansor.RecordToFile(log)])
        task.tune(given, ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0))
        logs.append(str(log))
    tasks = shipped_model.tasks_of([*logs, logs[0]])
    assert [len(one.found.rows) for one in tasks] == [40, 20, 20]
    assert tasks[0].computation == tasks[1].computation != tasks[2].computation
    judged = list(shipped_model.judged(tasks))
    assert len(judged) == 3 and all(figures.shape == (3, 4) for *_, figures in judged)
    found = shipped_model.means(np.array([figures for *_, figures in judged]))
    assert found[0, 0] > 0.99 and found[0, 2] == 1, "the estimates are the costs here"


def measured(target: str, count: int) -> tuple[list[ansor.MeasureInput], list[ansor.MeasureResult]]:
    """Random programs of a convolution with a time each."""
    task = conv_task(target)
    states = ansor.SketchPolicy(task, ansor.RandomModel(0), seed=1, verbose=0).ask(count)
    results = [ansor.MeasureResult((1e-3 * (k + 1),), 0, "", 0.0, 0) for k in range(count)]
    return [ansor.MeasureInput(task, state) for state in states], results


def test_a_model_of_several_families_begins_from_none_of_them() -> None:
    """Trees of GPUs say nothing of processors; those that came with the package are no programs of the user's."""
    model = XGBModel(seed=0, num_warmup_sample=1)
    model.update(*measured("cuda", 12))
    assert model._base is not None and model.trained_on == 12
    model.update(*measured("c", 4))
    plain = XGBModel(seed=0, num_warmup_sample=1, shipped=False)
    plain.update(*measured("cuda", 12))
    plain.update(*measured("c", 4))
    states = [inp.state for inp in measured("c", 4)[0]]
    assert model._base is None and model.trained_on == plain.trained_on == 16
    np.testing.assert_array_equal(model.predict(conv_task("c"), states), plain.predict(conv_task("c"), states))


@pytest.mark.long
def test_a_nest_that_one_estimate_overrates_is_no_default() -> None:
    """Winograd's product as it is written takes 5.6 times as long as a tile of it on an H200."""
    task = ansor.SearchTask(compute_dag=te.ComputeDAG(winograd(13, 64, 256)), target="cuda")
    nest, found = plain_state(task), next(default_states(task))
    rated = AnalyticalModel().predict(task, [nest, found])
    assert rated[0] > rated[1]


def test_a_model_that_has_seen_a_larger_task_begins_from_nothing() -> None:
    small, large = [ansor.SearchTask(compute_dag=matmul(n, n, n), target="cuda -arch=sm_90") for n in (256, 4096)]
    model = ansor.XGBModel()
    for tasks, known in (([small], True), ([small, large], False), ([small], False)):
        model._choose_base(tasks)
        assert (model._base is not None) is known


def test_trees_of_the_package_are_known_where_a_computation_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(task: ansor.SearchTask) -> None:
        raise ansor.TaskError("not registered")

    monkeypatch.setattr(xgb, "shipped_model_of", refuses)
    model = ansor.XGBModel()
    model._choose_base([ansor.SearchTask(compute_dag=matmul(64, 64, 64), target="cuda")])
    assert model._base is not None
