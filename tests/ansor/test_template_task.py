"""Templates, tasks and the contexts that choose their configuration."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

import te_lite as te
from ansor import autotvm
from ansor.autotvm import ApplyConfig, ApplyHistoryBest, DispatchContext, MeasureInput, MeasureResult, TemplateError
from ansor.autotvm.task import Task, current_target, deserialize_args, serialize_args


@autotvm.template("test.scaled")
def scaled(data: Any, factor: int, padding: tuple[int, int]) -> Any:
    """Returns what it was run with."""
    cfg = autotvm.get_config()
    cfg.define_knob("x", [3, 5, 7])
    cfg.define_split("t", 12, num_outputs=2)
    cfg.add_flop(100)
    if cfg["x"].val == 7 and not isinstance(cfg, autotvm.ConfigSpace):
        cfg.raise_error("seven is one too many")
    return cfg["x"].val, data.shape, factor, padding, current_target()


ARGS = (("TENSOR", (1, 16, 14, 14), "int8"), 2, (1, 1))


def task_of(target: str = "vta", factor: int = 2) -> Task:
    return autotvm.create("test.scaled", (te.placeholder((1, 16, 14, 14), dtype="int8"), factor, [1, 1]), target)


def best(task: Task, index: int, cost: float, error_no: int = 0) -> Any:
    result = MeasureResult((cost,), error_no, "", 0.0, 0)
    return MeasureInput(task.target_text, task, task.config_space.get(index)), result


def test_a_task() -> None:
    task = task_of()
    assert task.args == ARGS and task.args[0][1] == (1, 16, 14, 14)
    assert task.workload == ("test.scaled", *ARGS)
    assert task.flop == 100 and len(task.config_space) == 18
    assert str(task).startswith("Task(func_name=test.scaled, args=(('TENSOR', (1, 16, 14, 14), 'int8'), 2, (1, 1))")
    value, shape, factor, padding, target = task.instantiate(task.config_space.get(1))
    assert (value, shape, factor, padding, str(target)) == (5, (1, 16, 14, 14), 2, (1, 1), "vta")
    assert current_target() is None


def test_arguments_come_back() -> None:
    values = (te.placeholder((2, 3), dtype="int8"), [1, [2.5, "x", None]], True)
    plain = serialize_args(values)
    assert plain == (("TENSOR", (2, 3), "int8"), (1, (2.5, "x", None)), True)
    again = deserialize_args(plain)
    assert again[0].shape == (2, 3) and again[0].dtype == "int8" and again[1:] == [(1, (2.5, "x", None)), True]
    assert serialize_args(again) == plain


def test_a_template_says_that_a_configuration_is_invalid() -> None:
    task = task_of()
    with pytest.raises(autotvm.InstantiationError, match=r"^seven is one too many$"):
        task.instantiate(task.config_space.get(2))


def test_the_fallback_is_the_first_choice(caplog: pytest.LogCaptureFixture) -> None:
    data = te.placeholder((1, 2), dtype="int8")
    with caplog.at_level(logging.WARNING, "autotvm"):
        assert scaled(data, 77, (0, 0))[0] == 3
        assert scaled(data, 77, (0, 0))[0] == 3
    assert len(caplog.records) == 1 and "77" in caplog.text


def test_contexts_nest() -> None:
    task, other = task_of(), task_of(factor=4)
    data = te.placeholder((1, 16, 14, 14), dtype="int8")
    outermost = DispatchContext.current
    with ApplyHistoryBest([best(task, 1, 1.0)]):
        assert scaled(data, 2, (1, 1))[0] == 5
        with ApplyHistoryBest([best(other, 1, 1.0)]):
            assert scaled(data, 2, (1, 1))[0] == 5 and scaled(data, 4, (1, 1))[0] == 5
            with ApplyConfig(task.config_space.get(0)):
                assert scaled(data, 4, (1, 1))[0] == 3
    assert DispatchContext.current is outermost


def test_history_best() -> None:
    """The least mean cost of what did not fail; targets are told apart by kind and model."""
    sim, board = task_of("vta -model=sim"), task_of("vta -model=pynq")
    records = [best(sim, 0, 3.0), best(sim, 1, 1.0), best(sim, 3, 0.5, error_no=4), best(board, 0, 0.7)]
    context = ApplyHistoryBest(records)
    assert context.query("vta -model=sim", sim.workload).index == 1
    assert context.query("vta -model=pynq", sim.workload).index == 0
    assert context.query("vta", sim.workload).index == context.query(None, sim.workload).index == 0
    assert context.query("c", sim.workload) is None
    context.update("vta -model=sim", sim.workload, sim.config_space.get(4))
    assert context.query("vta -model=sim", sim.workload).index == 4


def test_contexts_of_threads_are_apart() -> None:
    """Two threads run a template at the same time, each with a configuration of its own that it has entered twice."""
    task, outermost = task_of(), DispatchContext.current
    data = te.placeholder((1, 16, 14, 14), dtype="int8")
    turns, seen = threading.Barrier(2, timeout=60), {}

    def work(index: int) -> None:
        mine = ApplyConfig(task.config_space.get(index))
        with mine, mine:
            turns.wait()
            seen[index] = scaled(data, 2, (1, 1))[0]
            turns.wait()

    threads = [threading.Thread(target=work, args=(index,)) for index in (0, 1)]
    with ApplyConfig(task.config_space.get(0)) as own:
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        assert DispatchContext.current is own
    assert seen == {0: 3, 1: 5} and DispatchContext.current is outermost


def test_ansor_contexts_are_another_stack() -> None:
    import ansor

    before = ansor.DispatchContext.current
    with ApplyHistoryBest(None):
        assert ansor.DispatchContext.current is before


@autotvm.template("test.no_flop")
def no_flop() -> None:
    autotvm.get_config().define_knob("x", [1])


@autotvm.template("test.no_knob")
def no_knob() -> None:
    autotvm.get_config().add_flop(1)


REFUSED: list[tuple[Any, str]] = [
    (lambda: autotvm.create("test.unknown", (), "c"), "template: known ones are"),
    (lambda: autotvm.create("test.no_flop", (), "c"), "must call add_flop"),
    (lambda: autotvm.create("test.no_knob", (), "c"), "the template defines no knob"),
    (lambda: autotvm.create(len, (), "c"), "a template or its name is needed"),
    (lambda: autotvm.create("test.scaled", ({},), "c"), "arguments are tensors, numbers, texts, None, or lists"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(TemplateError) as caught:
        call()
    assert text in str(caught.value)


def test_the_decorated_function_names_its_task() -> None:
    assert autotvm.create(scaled, task_of().args, "vta").workload == task_of().workload
