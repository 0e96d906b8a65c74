"""Workloads, keys, tasks, dispatch."""

import functools
import math
import threading

import numpy as np
import pytest

import ansor
import te_lite as te
from ansor.core.tasks.catalog import CATALOG
from ansor.core.tasks.workloads import calc_workload_dis_factor, decode_workload_key
from tests.ansor.fake_measure import CostRunner, ReadyBuilder


@pytest.fixture
def scale(request):
    """A workload under a name of its own."""
    name = f"scale_{request.node.name}"

    def func(n, factor, shape=(2, 3)):
        a = te.placeholder((n, *shape), name="A")
        return [a, te.compute(a.shape, lambda *i: a(*i) * factor, name="B")]

    func.__name__ = name
    return func


def test_register_and_keys(scale):
    name = scale.__name__
    assert ansor.register_workload(scale) is ansor.register_workload(scale) is scale
    with pytest.raises(ansor.TaskError, match="another function is registered under this name"):
        ansor.register_workload(name, lambda n: scale(n, 1.0))
    ansor.register_workload(name, override=True)(scale)
    key = ansor.make_workload_key(scale, (np.int64(4), 2.5, (5, 6)))
    assert key == f'["{name}", 4, 2.5, [5, 6]]' == ansor.make_workload_key(name, [4, 2.5, [5, 6]])
    assert [t.shape for t in ansor.workload_key_to_tensors(key)] == [(4, 5, 6)] * 2
    for bad in ("not json", "[]", "[1]", '["nobody"]', f'["{name}"]', f'["{name}", "x", 1]', "[" * 5000):
        with pytest.raises((ansor.TaskError, te.TeError)) as info:
            ansor.workload_key_to_tensors(bad)
        assert "\n" not in str(info.value)
    with pytest.raises(ansor.TaskError, match="numbers, texts, tuples"):
        ansor.make_workload_key(name, (object(),))
    with pytest.raises(ansor.TaskError, match="is not registered"):
        ansor.make_workload_key(lambda: [], ())


def test_tensor_arguments(scale):
    name = scale.__name__
    ansor.register_workload(name, lambda a, n: [a, te.compute(a.shape, lambda *i: a(*i) + n, name="B")])
    key = ansor.make_workload_key(name, (te.placeholder((3, 5), "float64"), 1))
    assert key == f'["{name}", ["TENSOR", [3, 5], "float64"], 1]'
    a, b = ansor.workload_key_to_tensors(key)
    assert a.shape == b.shape == (3, 5) and b.dtype == "float64"


def test_override_forgets_old_computations(scale):
    ansor.register_workload(scale)
    before = ansor.SearchTask(scale, (4, 2.0), target="c").compute_dag
    assert ansor.SearchTask(scale, (4, 2.0), target="c").compute_dag is before
    ansor.register_workload(scale.__name__, lambda n, f: scale(n, f, (9,)), override=True)
    assert ansor.SearchTask(scale.__name__, (4, 2.0), target="c").compute_dag.tensors[0].shape == (4, 9)


CELL = """
@ansor.register_workload
def in_a_cell(n):
    a = te.placeholder((n,), name="A")
    return [a, te.compute((n,), lambda i: a[i] * FACTOR, name="B")]

ansor.register_workload("lambda_in_a_cell", lambda n: in_a_cell(n + 1))
"""


def test_a_cell_may_run_again():
    """Its functions are new objects every time; the last one counts, edited or not."""
    names = {"ansor": ansor, "te": te, "__name__": "__main__"}
    for factor in ("2.0", "2.0", "3.0"):
        exec(CELL.replace("FACTOR", factor), names)
        dag = ansor.SearchTask("in_a_cell", (4,), target="c").compute_dag
        assert f"A[i]*{float(factor):g}f" in str(dag)
        assert ansor.SearchTask("lambda_in_a_cell", (4,), target="c").compute_dag.inputs[0].shape == (5,)


@pytest.mark.parametrize("other", ["", "another_module", "lambda"])
def test_another_function_of_the_name_is_refused(other):
    names = {"ansor": ansor, "te": te, "__name__": "__main__"}
    exec(CELL.replace("FACTOR", "2.0"), names)
    with pytest.raises(ansor.TaskError, match="another function is registered under this name; pass override=True"):
        match other:
            case "another_module":
                exec(CELL.replace("FACTOR", "2.0"), {**names, "__name__": "another_module"})
            case "lambda":
                ansor.register_workload("lambda_in_a_cell", lambda n: [te.placeholder((n,), name="A")])
            case _:
                ansor.register_workload("in_a_cell", test_distance)


def test_the_catalogue_is_known_and_gives_way():
    entry = CATALOG["norm"]
    task = ansor.SearchTask("norm", entry.default, target="c")
    assert task.workload_key == entry.key(entry.default) == ansor.make_workload_key(entry.func, entry.default)
    ansor.register_workload("batch_matmul", lambda n: ansor.workload_key_to_tensors(f'["norm", {n}, 8, 8]'))
    try:
        assert ansor.SearchTask("batch_matmul", (3,), target="c").compute_dag.inputs[0].shape == (3, 8, 8)
    finally:
        ansor.register_workload("batch_matmul", CATALOG["batch_matmul"].func, override=True)


@pytest.mark.parametrize("bad", [3, None, functools.partial(print), ("name", 3)])
def test_what_is_no_named_function_is_refused(bad):
    with pytest.raises(ansor.TaskError, match=r"register_workload: .* is needed|register_workload: .* has no name"):
        ansor.register_workload(*bad) if isinstance(bad, tuple) else ansor.register_workload(bad)


def test_distance():
    assert calc_workload_dis_factor(((128, 64, "x"), "f"), ((16, 32, "x"), "f")) == 8 * 2
    for other in (((16, 0, "x"), "f"), ((16, 32, "y"), "f"), ((16, 32, "x"), "g"), ((16, 33, "x"), "f"), ((16,), "f")):
        assert calc_workload_dis_factor(((128, 64, "x"), "f"), other) == math.inf
    assert decode_workload_key('["f", 1, [2, [3]], "x"]') == ("f", (1, 2, 3, "x"))
    assert decode_workload_key("plain") == ("plain", None)


def test_tasks(scale):
    a = te.placeholder((4,), name="A")
    dag = ansor.ComputeDAG([a, te.compute((4,), lambda i: a[i] + 1.0, name="B")])
    task = ansor.SearchTask(compute_dag=dag, target="llvm -mcpu=core-avx2", desc="plus one")
    assert task.compute_dag is dag and task.workload_key == dag.workload_key() and task.name == "plus one"
    assert task.target.kind.name == "c" and task.hardware_params.vector_unit_bytes == 64
    assert ansor.SearchTask(workload_key=task.workload_key, target="c").compute_dag is dag
    part = ansor.SearchTask(compute_dag=dag, target="c", hardware_params=ansor.HardwareParams(num_cores=3))
    assert (part.hardware_params.num_cores, part.hardware_params.cache_line_bytes) == (3, 64)
    again = ansor.SearchTask("norm", (1, 4, 4), target="c").compute_dag
    assert ansor.SearchTask("norm", (1, 4, 4), compute_dag=again, target="c").compute_dag is again
    for kwargs, text in (
        ({"target": "c"}, "a computation is needed"),
        ({"compute_dag": dag}, "a target is needed"),
        ({"compute_dag": dag, "target": "c", "layout_rewrite_option": 3}, "layout options are 0, 1 and 2"),
        ({"compute_dag": dag, "target": "cuda", "layout_rewrite_option": 1}, "for target c only"),
        ({"compute_dag": dag, "target": "c", "task_inputs": {"Z": 1}}, "'Z' is no placeholder"),
        ({"compute_dag": dag, "target": "c", "task_inputs": {"A": np.zeros(4)}}, "must be float32"),
        ({"func": scale, "target": "c"}, "a function needs args"),
        ({"func": "norm", "args": (1, 4, 4), "compute_dag": "c"}, "the target must be a keyword, .*got 'c'"),
        ({"func": "norm", "args": (1, 4, 4), "compute_dag": dag, "target": "c"}, "compute_dag is another computation"),
        ({"func": "norm", "args": (1, 4, 4), "workload_key": "x", "target": "c"}, "workload_key is another one"),
        ({"func": "nrom", "args": (1, 4, 4), "target": "c"}, "did you mean norm"),
        ({"workload_key": '["nobody", 1]', "target": "c"}, "is not registered"),
    ):
        with pytest.raises(ansor.TaskError, match=text):
            ansor.SearchTask(**kwargs)


@pytest.mark.parametrize("listed, law", [((0,), "computes nothing, its list has inputs only"), ((0, 1, 1), "twice: B")])
def test_a_function_that_lists_no_computation_is_refused(scale, listed, law):
    name = f"{scale.__name__}_of_{len(listed)}"

    def func(n):
        tensors = scale(n, 2.0)
        return [tensors[k] for k in listed]

    ansor.register_workload(name, func)
    with pytest.raises(ansor.TaskError, match=rf"_of_{len(listed)}\(8\): .*{law}"):
        ansor.SearchTask(name, (8,), target="c")


def test_best_of_a_log(tmp_path, matmul_task, record):
    log = tmp_path / "log"
    ansor.save_records(log, *zip(record(0, error_no=5), strict=True))
    with pytest.raises(RuntimeError, match="Cannot find any valid schedule for"):
        matmul_task.apply_best(log)
    (tmp_path / "empty").write_text("")
    for task, name, text in (
        (matmul_task, "log", "none of its records of this workload is valid"),
        (matmul_task, "empty", "it holds no record$"),
        (ansor.SearchTask("norm", (1, 4, 4), target="c"), "log", r"its workloads are matmul\(13, 11, 7\)$"),
        (ansor.SearchTask("matmul", (13, 11, 7), target="cuda"), "log", "are for c, and the task is for cuda"),
    ):
        with pytest.raises(ansor.NoRecordError, match=text):
            task.best_state(tmp_path / name)
    pairs = [record(2e-3), record(1e-3), record(3e-3)]
    ansor.save_records(log, *zip(*pairs, strict=True))
    sch, args = matmul_task.apply_best(log)
    assert sch.state == pairs[1][0].state and [t.name for t in args] == ["A", "B", "C"]
    with pytest.raises(ValueError, match="print_mode must be 'schedule' or 'c'"):
        matmul_task.print_best(log, print_mode="cuda")


def test_dispatch(tmp_path, matmul_task, record, states):
    key = matmul_task.workload_key
    slow, fast = record(2e-3), record(1e-3)
    ansor.save_records(tmp_path / "a", *zip(slow, strict=True))
    ansor.save_records(tmp_path / "b", *zip(fast, record(0, error_no=4), strict=True))
    query = lambda k=key, target="c", dag=None: ansor.DispatchContext.current.query(target, k, dag=dag)  # noqa: E731
    assert query() is None
    with ansor.ApplyHistoryBest(tmp_path / "a") as outer:
        assert query() == slow[0].state
        with ansor.ApplyHistoryBest([tmp_path / "a", tmp_path / "b"]):
            assert query(dag=matmul_task.compute_dag) == fast[0].state
            assert query(target="cuda") is None and query('["matmul", 26, 11, 7]') is None
        with ansor.ApplyHistoryBest([tmp_path / "a", tmp_path / "b"], n_lines=1):
            assert query() == slow[0].state
        with ansor.ApplyHistoryBest([fast, slow], include_compatible=True) as inner:
            big = ansor.SearchTask("matmul", (26, 11, 7), target="c")
            assert query(big.workload_key, dag=big.compute_dag).steps == fast[0].steps
            other = states(8)[7]
            inner.update("c", key, other)
            assert query() == other
        with ansor.ApplyHistoryBest(None):
            assert query() == slow[0].state
        assert ansor.DispatchContext.current is outer
    assert query() is None
    with pytest.raises(ansor.JournalError):
        ansor.ApplyHistoryBest(tmp_path / "nothing")


def offline(**more):
    """Tuning options that need no device."""
    return ansor.TuningOptions(3, verbose=0, builder=ReadyBuilder(), runner=CostRunner(lambda k: 1e-3), **more)


def test_contexts_of_threads_are_apart():
    """Two threads are inside contexts of their own at the same time; each context is entered twice."""
    outermost, key = ansor.DispatchContext.current, '["matmul", 13, 11, 7]'
    turns, seen = threading.Barrier(2, timeout=60), {}

    def work(name):
        turns.wait()
        mine = ansor.ApplyHistoryBest(None)
        with mine, mine:
            turns.wait()
            mine.update("c", key, name)
            turns.wait()
            seen[name] = ansor.DispatchContext.current.query("c", key)
            missing = ansor.DispatchContext.current.query("c", "nothing")
            seen[name] = seen[name] if missing is None else missing
            if name == "first":
                turns.wait()
        if name == "second":
            turns.wait()

    with ansor.ApplyHistoryBest(None) as own:
        threads = [threading.Thread(target=work, args=(name,)) for name in ("first", "second")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert ansor.DispatchContext.current is own
    assert seen == {"first": "first", "second": "second"} and ansor.DispatchContext.current is outermost


def test_a_policy_must_fit_its_task(matmul_task):
    other = ansor.SearchTask("matmul", (26, 11, 7), target="c")
    gpu = ansor.SearchTask("matmul", (13, 11, 7), target="cuda")
    for wrong in (other, gpu):
        with pytest.raises(ansor.TaskError, match=r"SearchTask\.tune: the policy is for another task"):
            matmul_task.tune(offline(), ansor.SketchPolicy(wrong, ansor.RandomModel(1), verbose=0))
    for wrong in ("sketch.xgb", 3):
        with pytest.raises(ansor.TaskError, match="search_policy must be an object with a method search"):
            matmul_task.tune(offline(), wrong)
    again = ansor.SearchTask("matmul", (13, 11, 7), target="c")
    matmul_task.tune(offline(), ansor.SketchPolicy(again, ansor.RandomModel(1), verbose=0))


def test_a_time_limit_needs_a_policy_that_knows_it(matmul_task):
    class Own:
        def __init__(self):
            self.got = []

        def search(self, trials, early_stopping, per_round, measurer):
            self.got.append(trials)

    class Keywords(Own):
        def search(self, *positional, **keywords):
            self.got.append(keywords)

    own, keywords = Own(), Keywords()
    matmul_task.tune(offline(), own)
    with pytest.raises(ansor.TaskError, match="search has no parameter time_limit, got policy='Own'"):
        matmul_task.tune(offline(time_limit=5), own)
    matmul_task.tune(offline(time_limit=5), keywords)
    matmul_task.tune(offline(time_limit=5), ansor.EmptyPolicy(matmul_task))
    assert own.got == [3] and keywords.got == [{"time_limit": 5}]


def test_tuning_options_are_checked(tmp_path):
    recorder = ansor.RecordToFile(tmp_path / "log")
    for given, text in (
        ({"measure_callbacks": recorder}, "measure_callbacks: a list of objects with a method callback is needed"),
        ({"measure_callbacks": [recorder, print]}, "measure_callbacks: a list of objects with a method callback"),
        ({"time_limit": float("nan")}, "time_limit must be a positive number of seconds, got time_limit=nan"),
        ({"time_limit": 0}, "got time_limit=0"),
        ({"time_limit": "5"}, "got time_limit='5'"),
    ):
        with pytest.raises(ansor.TaskError, match=text):
            ansor.TuningOptions(**given)
    assert ansor.TuningOptions(measure_callbacks=(recorder,)).measure_callbacks == (recorder,)


@pytest.mark.parametrize("scheduled", [False, True])
def test_tensors_that_this_machine_cannot_hold(monkeypatch: pytest.MonkeyPatch, scheduled: bool) -> None:
    monkeypatch.setattr("ansor.policy.task_actions.host_memory", lambda: 5e6)
    a = te.placeholder((1000, 1000), name="A")
    task = ansor.SearchTask(compute_dag=[a, te.compute((16,), lambda i: a[i, i] + 1.0, name="B")], target="c")
    options = ansor.TuningOptions(num_measure_trials=1, verbose=0)
    with pytest.raises(ansor.TaskError, match=r"half of this machine's memory, 0.0025 GB, got '0.004 GB'"):
        ansor.TaskScheduler([task], seed=0).tune(options) if scheduled else task.tune(options)
