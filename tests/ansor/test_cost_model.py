"""Cost models keep the suite's promises; training is deterministic, warm starts, and refuses what does not fit."""

import logging
import threading
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import ansor
from ansor.cost_model import reads_features
from ansor.cost_model.metrics import pairwise_accuracy, rmse
from te_lite.errors import LowerError
from tests.conformance.cost_model import CostModelSuite, measured

__all__ = ["measured"]


class Shortest(ansor.PythonBasedModel):
    """A model of one's own, which looks at states: it likes programs of few steps, and what was fast before."""

    def __init__(self):
        self.fast = Counter()

    def update(self, inputs, results):
        self.fast.update(len(i.steps) for i, r in zip(inputs, results, strict=True) if r.ok)

    def predict(self, task, states):
        return np.array([self.fast[len(s.steps)] - len(s.steps) for s in states], dtype=float)


class TestRandomModel(CostModelSuite):
    random = True

    @pytest.fixture
    def model(self):
        return ansor.RandomModel(seed=1)


class TestXGBModel(CostModelSuite):
    learns = True

    @pytest.fixture
    def model(self):
        return ansor.XGBModel(num_warmup_sample=20, seed=1)


class TestPythonBasedModel(CostModelSuite):
    @pytest.fixture
    def model(self):
        return Shortest()


def test_who_reads_features():
    class Bare:
        def update(self, inputs, results): ...

        def predict(self, task, states): ...

    assert [reads_features(m) for m in (ansor.RandomModel(), ansor.XGBModel(), Shortest(), Bare())] == [1, 1, 0, 0]


def synthetic(n, seed=0, rows=3, columns=17):
    """Features float32 [n, rows, columns] and the costs that they explain, each row its part."""
    rng = np.random.default_rng(seed)
    features = rng.integers(0, 6, (n, rows, columns)).astype(np.float32)
    gain = np.tanh(features[:, :, 0] - features[:, :, 1]) + 0.2 * features[:, :, 2]
    return features, np.exp(-gain.sum(axis=1))


def trained(task, n=120, **options):
    model = ansor.XGBModel(num_warmup_sample=0, **options)
    features, costs = synthetic(n)
    model.add_features(task, features, costs)
    model.use(model.fit(model.dataset()))
    return model


def test_features_and_states_are_scored_alike(measured):
    model = ansor.XGBModel(num_warmup_sample=20)
    model.update(*measured.told(slice(48)))
    hardware = measured.task.hardware_params
    rows = [model.features.of(s, hardware) for s in measured.states]
    height = max(map(len, rows))
    features = np.stack([np.pad(r, ((0, height - len(r)), (0, 0))) for r in rows])
    expected = model.predict(measured.task, measured.states)
    np.testing.assert_array_equal(model.predict_features(measured.task, features), expected)
    assert len(set(expected)) > 20
    by_features = ansor.XGBModel(num_warmup_sample=20)
    by_features.add_features(measured.task, features[:48], measured.costs[:48])
    by_features.use(by_features.fit(by_features.dataset()))
    np.testing.assert_array_equal(by_features.predict(measured.task, measured.states), expected)


def test_rows_have_no_order_and_rows_of_zeros_no_meaning(matmul_task):
    features, costs = synthetic(150)
    order = np.random.default_rng(1).permuted(np.tile(np.arange(5), (150, 1)), axis=1)
    filled = np.pad(features, ((0, 0), (0, 2), (0, 0)))
    shuffled = np.take_along_axis(filled, order[:, :, None], axis=1)
    models = []
    for told in (features, shuffled):
        model = ansor.XGBModel(num_warmup_sample=0)
        model.add_features(matmul_task, told[:100], costs[:100])
        model.use(model.fit(model.dataset()))
        models.append(model)
    np.testing.assert_array_equal(*[m.dataset().rows for m in models])
    first, second = (m.predict_features(matmul_task, features[100:]) for m in models)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first, models[0].predict_features(matmul_task, shuffled[100:]))
    assert pairwise_accuracy(first, costs[100:]) > 0.7


def test_the_same_data_and_seed_give_the_same_model(matmul_task):
    unseen, _ = synthetic(40, seed=9)
    first, again, other = (trained(matmul_task, seed=s).predict_features(matmul_task, unseen) for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_training_in_a_thread_while_the_old_trees_predict(matmul_task):
    model = trained(matmul_task, n=60)
    unseen, _ = synthetic(40, seed=9)
    before = model.predict_features(matmul_task, unseen)
    features, costs = synthetic(200, seed=5)
    model.add_features(matmul_task, features, costs)
    data, made = model.dataset(), []
    thread = threading.Thread(target=lambda: made.append(model.fit(data)))
    thread.start()
    while thread.is_alive():
        np.testing.assert_array_equal(model.predict_features(matmul_task, unseen), before)
    assert model.trained_on == 60
    model.use(made[0])
    assert model.trained_on == 260
    here = model.fit(data)
    np.testing.assert_array_equal(here.predict(unseen), model.predict_features(matmul_task, unseen))
    assert (here.predict(unseen) != before).any()


def test_labels_are_per_task_and_target_kind(matmul_task):
    slow = ansor.SearchTask("matmul", (26, 22, 14), target="c")
    features, costs = synthetic(160)
    model = ansor.XGBModel(num_warmup_sample=0)
    model.add_features(matmul_task, features[:80], costs[:80])
    model.add_features(slow, features[80:], 1e4 * costs[80:])
    model.add_features(ansor.SearchTask("matmul", (5, 4, 2), target="c"), features[:4], np.full(4, np.inf))
    gpu = ansor.SearchTask("matmul", (13, 11, 7), target="cuda")
    model.add_features(gpu, features[:2], np.array([1e-9, 2e-9]))
    labels = model.dataset().throughputs()
    np.testing.assert_allclose(labels[:80], costs[:80].min() / costs[:80])
    np.testing.assert_allclose(labels[80:160], costs[80:].min() / costs[80:])
    assert list(labels[160:]) == [0, 0, 0, 0, 1, 0.5]
    model.use(model.fit(model.dataset()))
    assert np.corrcoef(model.predict_features(slow, features[80:]), labels[80:160])[0, 1] > 0.9


def test_warm_up_and_adaptive_training(matmul_task):
    features, costs = synthetic(200)
    model = ansor.XGBModel(num_warmup_sample=100, adaptive_training=True)
    seen = []
    for start in range(0, 200, 10):
        model.add_features(matmul_task, features[start : start + 10], costs[start : start + 10])
        if model.due:
            model.use(model.fit(model.dataset()))
            seen.append(model.trained_on)
        twice = [model.predict_features(matmul_task, features[:5]) for _ in range(2)]
        assert (twice[0] == twice[1]).all() == model.ready == (start + 10 >= 100)
    assert seen == [10, 20, 30, 40, 50, 60, 80, 100, 120, 150, 180]


def test_a_loaded_model_goes_on_learning(matmul_task, tmp_path):
    trained(matmul_task, n=300).save(tmp_path / "model")
    unseen, costs = synthetic(200, seed=9)
    few, few_costs = synthetic(12, seed=4)
    warm, cold = ansor.XGBModel(), ansor.XGBModel(num_warmup_sample=0)
    warm.load(tmp_path / "model")
    assert warm.trained_on == 300
    errors = []
    for model in (warm, cold):
        model.add_features(matmul_task, few, few_costs)
        model.use(model.fit(model.dataset()))
        scores = model.predict_features(matmul_task, unseen)
        errors.append(np.corrcoef(scores, costs.min() / costs)[0, 1])
    assert warm.trained_on == 312 and cold.trained_on == 12
    assert errors[0] > errors[1] + 0.1


def test_a_better_model_file_is_kept(matmul_task, tmp_path, caplog):
    file = tmp_path / "model"
    trained(matmul_task, n=120, model_file=file)
    best = file.read_bytes()
    model = trained(matmul_task, n=60, model_file=file)
    assert file.read_bytes() == best and "trained on more programs (120)" in caplog.text
    model.save(file)
    assert file.read_bytes() != best and "is replaced by a model of 60" in caplog.text
    trained(matmul_task, n=60, model_file=file)
    file.write_text("nothing")
    trained(matmul_task, n=10, model_file=file)
    assert "a file is replaced" in caplog.text and len(file.read_bytes()) > 100
    assert [p.name for p in tmp_path.iterdir()] == ["model"]
    with pytest.raises(ansor.JournalError, match="cannot be written"):
        model.save(tmp_path / "missing" / "model")


def test_other_features_are_refused(matmul_task, tmp_path):
    model = trained(matmul_task)
    model.save(tmp_path / "model")
    other = ansor.XGBModel()
    other.features = replace(other.features, schema="something else")
    with pytest.raises(ansor.TaskError, match="was trained on other features"):
        other.load(tmp_path / "model")
    for call in (
        lambda f: model.predict_features(matmul_task, f),
        lambda f: model.add_features(matmul_task, f, np.ones(len(f))),
    ):
        with pytest.raises(ansor.TaskError, match="17"):
            call(np.ones((4, 3, 16), np.float32))


def test_a_program_that_cannot_be_scored(matmul_task):
    model = trained(matmul_task)
    features, _ = synthetic(6, seed=2)
    expected = model.predict_features(matmul_task, features)
    features[1] = 0
    features[2, 1, 3] = np.nan
    features[3, 0, 0] = np.inf
    scores = model.predict_features(matmul_task, features)
    np.testing.assert_array_equal(scores[[0, 4, 5]], expected[[0, 4, 5]])
    assert (scores[1:4] == -np.inf).all()


def test_a_state_without_features(measured):
    model = ansor.XGBModel(num_warmup_sample=0)
    model.update(*measured.told(slice(48)))
    expected = model.predict(measured.task, measured.states)
    source = model.features

    def refusing(state, hardware):
        if state is measured.states[2]:
            raise LowerError("no bounds")
        return source.of(state, hardware)

    sizes = []

    def together(states, hardware):
        sizes.append(len(states))
        if any(s is measured.states[2] for s in states):
            raise LowerError("no bounds")
        return source.many(states, hardware)

    expected[2] = -np.inf
    for many in (together, None):
        model.features = replace(source, of=refusing, many=many)
        np.testing.assert_array_equal(model.predict(measured.task, measured.states), expected)
        assert model.predict(measured.task, measured.states[2:3]) == [-np.inf]
    assert sizes[0] == len(measured.states) and len(sizes) < 2 * np.log2(sizes[0]) + 3


def test_training_error_is_logged(matmul_task, caplog):
    caplog.set_level(logging.DEBUG, "ansor")
    trained(matmul_task, verbose_eval=10)
    assert "round [10]" in caplog.text and "p-rmse" in caplog.text


def test_models_from_logs_and_files(measured, tmp_path):
    ansor.save_records(tmp_path / "log", *measured.told(slice(60)))
    model = ansor.XGBModel(num_warmup_sample=30, model_file=tmp_path / "model")
    with pytest.raises(ansor.TaskError, match="nothing was learnt"):
        model.save(tmp_path / "x")
    model.update_from_file(tmp_path / "log", n_lines=40)
    assert model.trained_on == 40
    told = ansor.XGBModel(num_warmup_sample=30)
    told.update(*measured.told(slice(40)))
    loaded = ansor.XGBModel()
    loaded.load(tmp_path / "model")
    scores = [m.predict(measured.task, measured.states) for m in (model, told, loaded)]
    assert (scores[0] == scores[1]).all() and (scores[0] == scores[2]).all()
    (tmp_path / "bad").write_bytes(b"nothing")
    for path in (tmp_path / "bad", tmp_path / "missing", tmp_path):
        with pytest.raises(ansor.TaskError, match="holds no model"):
            loaded.load(path)


def test_random_labels_are_learnt_by_heart(measured):
    """As TVM's own test has it: 50 programs with random throughputs, an RMSE of at most 0.3 on them."""
    throughputs = np.append(1, np.random.default_rng(0).random(49))
    inputs = [ansor.MeasureInput(measured.task, s) for s in measured.states[:50]]
    results = [ansor.MeasureResult((1e-3 / t,), 0, "", 0.1, 0) for t in throughputs]
    model = ansor.XGBModel(num_warmup_sample=-1)
    model.update(inputs, results)
    assert rmse(model.predict(measured.task, measured.states[:50]), throughputs) <= 0.3
