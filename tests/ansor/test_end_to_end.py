"""The main job on target c: tune, apply, build, check against NumPy, print, resume."""

import io
import itertools
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import ansor
import te_lite as te
from ansor.core.tasks.catalog import CATALOG
from ansor.measure import progress
from ansor.measure.displays import make_display
from ansor.measure.live_display import LiveDisplay
from ansor.measure.progress import PlainDisplay, SilentDisplay, seconds_text
from relay_lite.op.numpy_windows import convolve as conv2d_nchw_python
from tests.ansor.fake_measure import fake_measurer


@pytest.fixture(scope="module")
def tune():
    """Tunes a task with one builder and one runner, which serve all tests."""
    runner = ansor.LocalRunner(timeout=30, number=1, min_repeat_ms=1)
    builder = ansor.LocalBuilder(timeout=60)

    def tune(task, log, trials, **options):
        policy = ansor.SketchPolicy(
            task, ansor.RandomModel(0), seed=11, params={"sample_init_min_population": 1}, verbose=0
        )
        callbacks = [ansor.RecordToFile(log)]
        options = ansor.TuningOptions(trials, builder=builder, runner=runner, measure_callbacks=callbacks, **options)
        task.tune(options, policy)
        return ansor.RecordReader(log).read_lines()[1]

    yield tune
    builder.close()
    runner.close()


def test_matmul(tune, tmp_path):
    task, log = ansor.SearchTask("matmul", (37, 64, 29), target="c"), tmp_path / "log.json"
    results = tune(task, log, 4, verbose=0)
    assert [r.error_no for r in results] == [0] * 4, results
    func = task.build_best(log)
    rng = np.random.default_rng(0)
    a, b = rng.uniform(-1, 1, (37, 29)).astype("float32"), rng.uniform(-1, 1, (29, 64)).astype("float32")
    c = np.full((37, 64), np.nan, "float32")
    func(a, b, c)
    np.testing.assert_allclose(c, a.astype("float64") @ b, atol=1e-5)
    assert "void " in func.source and func.source == task.print_best(log, "c")
    assert func.time(a, b, c, number=2).mean > 0
    schedule = te.create_schedule([task.compute_dag.tensors[-1].op])
    names = {t.name: t for t in task.compute_dag.tensors}
    exec(task.print_best(log), {**names, "s": schedule, "te": te, "tuple": tuple})
    again, best = te.lower(schedule, task.compute_dag.tensors), te.lower(*task.apply_best(log))
    assert len(str(again).splitlines()) == len(str(best).splitlines())
    d = np.full((37, 64), np.nan, "float32")
    ansor.build(again)(a, b, d)
    np.testing.assert_array_equal(c, d)


@pytest.mark.long
def test_strided_padded_batched_conv(tune, tmp_path, capsys):
    args = (2, 9, 7, 6, 5, 3, 3, (2, 2), (1, 1))
    task, log = ansor.SearchTask("conv2d_layer", args, target="c"), tmp_path / "log.json"
    results = tune(task, log, 4, verbose=2)
    assert [r.error_no for r in results] == [0] * 4, results
    out = capsys.readouterr().out
    assert "[4/4]" in out and "4 trials in" in out and "conv2d_nchw = ..." in out
    sch, tensors = task.apply_best(log)
    func = ansor.build(sch, tensors, task.target)
    rng = np.random.default_rng(1)
    data, kernel, bias = (rng.uniform(-1, 1, t.shape).astype("float32") for t in tensors[:3])
    expected = np.maximum(conv2d_nchw_python(data, kernel, (2, 2), (1, 1)) + bias, 0)
    held = [ansor.nd.array(x, device=ansor.cpu()) for x in (data, kernel, bias)]
    got = ansor.nd.empty(expected.shape, device=ansor.cpu())
    func(*held, got)
    np.testing.assert_allclose(got.asnumpy(), expected, atol=1e-5)
    evaluator = func.time_evaluator(func.entry_name, ansor.cpu(), min_repeat_ms=1)
    assert np.median(evaluator(*held, got).results) > 0


@pytest.mark.long
def test_tutorial_resume(tmp_path):
    task, log = ansor.SearchTask("matmul", (16, 16, 16), target="c"), tmp_path / "log.json"
    for trials in (3, 2):
        measure_ctx = ansor.LocalRPCMeasureContext(min_repeat_ms=1)
        options = ansor.TuningOptions(
            num_measure_trials=trials, runner=measure_ctx.runner, measure_callbacks=[ansor.RecordToFile(log)], verbose=0
        )
        policy = None
        if trials == 2:
            model = ansor.XGBModel()
            model.update_from_file(log)
            policy = ansor.SketchPolicy(
                task, model, init_search_callbacks=[ansor.PreloadMeasuredStates(log)], verbose=0
            )
        task.tune(options, search_policy=policy)
        (pid,) = measure_ctx.runner.pids()
        assert Path(f"/proc/{pid}").exists()
        del measure_ctx, options
        assert not Path(f"/proc/{pid}").exists()
    inputs, results = ansor.RecordReader(log).read_lines()
    assert len({str(i.state.dag.infer_bound_from_state(i.state)) for i in inputs}) == 5 and all(r.ok for r in results)


@pytest.mark.parametrize("name", sorted(set(CATALOG) - {"conv3d", "conv2d_nhwc"}))
@pytest.mark.one_in(3)
def test_every_cataloged_workload_is_measured_right(tune, name, tmp_path):
    small = {
        "conv2d": (1, 6, 5, 7, 3, 3, 1, 1), "matmul": (9, 8, 7), "dense": (3, 10, 6), "batch_matmul": (2, 5, 6, 7),
        "conv1d": (1, 12, 3, 4, 3, 2, 1), "depthwise_conv2d": (1, 7, 6, 5, 3, 1, 1), "softmax": (5, 9),
        "norm": (2, 5, 6),
    }  # fmt: skip
    task = ansor.SearchTask(workload_key=CATALOG[name].key(small[name]), target="c")
    results = tune(task, tmp_path / "log.json", 3, verbose=0)
    assert [r.error_no for r in results] == [0] * 3, results


def test_what_is_waited_for_is_said(matmul_task, record):
    plain = io.StringIO()
    display = PlainDisplay(plain)
    with display.run(matmul_task, 2):
        for text in ("choosing", "building", "choosing", "building"):
            display.phase(text)
        assert plain.getvalue().splitlines()[1:] == ["choosing ...", "building ..."]
        display.result(matmul_task, *record(1e-3), 1e-3)
        display.phase("a round in between")
        display.result(matmul_task, *record(1e-3), 1e-3)
        display.phase("timing")
    lines = plain.getvalue().splitlines()
    assert "a round in between ..." not in lines and lines[-2] == "timing ..."


def test_the_live_display_counts_the_seconds_of_waiting(matmul_task, monkeypatch):
    now = itertools.count(100, 7)
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    console = Console(file=io.StringIO(), width=100)
    live = LiveDisplay(console)
    live.phase("choosing 16 programs")
    live.bar = "the bar"
    console.print(live)
    assert "now" in (shown := console.file.getvalue()) and "choosing 16 programs (7 s)" in shown


def test_a_search_says_what_it_waits_for_before_its_first_result(matmul_task):
    said = []

    class Ear(SilentDisplay):
        def phase(self, text):
            said.append(text)

        def result(self, task, inp, result, best):
            said.append(result.cost)

    measurer = fake_measurer(lambda k: 1e-3)
    measurer.display = Ear()
    ansor.SketchPolicy(matmul_task, ansor.RandomModel(0), seed=1, verbose=0).search(2, None, 2, measurer)
    building = "computing the right result, building and running 2 programs"
    assert said[:4] == ["choosing 2 programs to measure", building, building, 1e-3]


def test_displays(matmul_task, record):
    stream = io.StringIO()
    live = LiveDisplay(Console(file=stream, force_terminal=True, width=100))
    with live.run(matmul_task, 3):
        live.phase("building 3 programs")
        live.result(matmul_task, *record(2.5e-3), 2.5e-3)
        live.result(matmul_task, *record(error_no=7), 2.5e-3)
    text = stream.getvalue()
    assert "2.5 ms" in text and "1 RUN_TIMEOUT" in text and "matmul(13, 11, 7) for c" in text
    plain = io.StringIO()
    display = PlainDisplay(plain)
    with pytest.raises(KeyboardInterrupt), display.run(matmul_task, 3):
        display.result(matmul_task, *record(error_no=5), None)
        display.result(matmul_task, *record(1e-6), 1e-6)
        raise KeyboardInterrupt
    last = plain.getvalue().splitlines()[-1]
    assert last.startswith("2 trials in ") and last.endswith("best 1 us (2.0 GFLOP/s); failed: 1 WRONG_ANSWER")
    with make_display(0).run(matmul_task, 1):
        make_display(0).result(matmul_task, *record(), 1.0)
    assert [seconds_text(s) for s in (2.0, 1.5e-3, 3.21e-6, 4e-9)] == ["2 s", "1.5 ms", "3.21 us", "4 ns"]
