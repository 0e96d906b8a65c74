"""Pass contexts nest and check their options; a sequence runs what the context enables."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np
import pytest

from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call, var
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Constant, Function
from relay_lite.transform import InferType, Pass, PassContext, RemoveUnusedFunctions, Sequential, register_config


def _logger(log: list[str]) -> Callable[..., Pass]:
    def logging(name: str, level: int, required: tuple[Pass, ...] = ()) -> Pass:
        def run(function: Function) -> Function:
            log.append(name)
            return function

        return Pass(name, level, required, run)

    return logging


def _graph() -> Function:
    x = var("x", (2, 3))
    return Function((x,), call("nn.relu", x))


def test_contexts_nest_and_are_left_after_an_error() -> None:
    assert PassContext.current().opt_level == 2
    with PassContext(opt_level=3) as outer:
        assert PassContext.current() is outer
        with pytest.raises(ZeroDivisionError), PassContext(opt_level=0):
            assert PassContext.current().opt_level == 0
            _ = 1 // 0
        with outer:
            assert PassContext.current() is outer
        assert PassContext.current() is outer
    assert PassContext.current().opt_level == 2


def test_a_context_belongs_to_its_thread() -> None:
    seen: list[int] = []
    with PassContext(opt_level=4):
        other = threading.Thread(target=lambda: seen.append(PassContext.current().opt_level))
        other.start()
        other.join()
    assert seen == [2]


def test_options_are_checked() -> None:
    context = PassContext(config={"relay.backend.use_auto_scheduler": True, "relay.FuseOps.max_depth": 3})
    assert context.option("relay.FuseOps.max_depth", 256) == 3
    assert PassContext().option("relay.FuseOps.max_depth", 256) == 256
    with pytest.raises(GraphError, match=r"pass option.*relay\.FuseOps\.max_dept'"):
        PassContext(config={"relay.FuseOps.max_dept": 3})
    with pytest.raises(GraphError, match="type int is needed, got True"):
        PassContext(config={"relay.FuseOps.max_depth": True})
    with pytest.raises(GraphError, match="keys are"):
        PassContext().option("relay.fast", False)
    with pytest.raises(GraphError, match="a list of names is needed, got 'FoldConstant'"):
        PassContext(disabled_pass="FoldConstant")


def test_a_new_option_is_registered_once() -> None:
    register_config("test.width", int)
    register_config("test.width", int)
    assert PassContext(config={"test.width": 3}).option("test.width", 1) == 3
    with pytest.raises(GraphError, match="another type"):
        register_config("test.width", str)


def test_a_sequence_runs_what_is_enabled_and_what_that_requires() -> None:
    log: list[str] = []
    logging = _logger(log)
    before = logging("before", 4)
    sequence = Sequential([logging("a", 0), logging("b", 2), logging("c", 3, (before,)), InferType()])

    def ran(**settings: object) -> list[str]:
        log.clear()
        with PassContext(**settings):  # type: ignore[arg-type]
            sequence(_graph())
        return list(log)

    assert ran() == ["a", "b"]
    assert ran(opt_level=0) == ["a"]
    assert ran(opt_level=3) == ["a", "b", "before", "c"]
    assert ran(opt_level=0, required_pass=["c"]) == ["a", "before", "c"]
    assert ran(opt_level=3, disabled_pass=["a", "c"]) == ["b"]
    assert ran(opt_level=3, required_pass=["b"], disabled_pass=["b"]) == ["a", "before", "c"]
    nested = Sequential([sequence], opt_level=3, name="outer")
    log.clear()
    nested(_graph())
    assert log == ["a", "b"], "a pass that is called by itself runs; its parts ask the context"


def test_a_pass_maps_all_functions_but_fused_groups() -> None:
    log: list[str] = []
    main, group = _graph(), Function(_graph().params, _graph().body, {"primitive": True})
    module = IRModule({"main": main, "group": group})
    made = RemoveUnusedFunctions()(_logger(log)("a", 0)(module))
    assert made["main"] is main and made["group"] is group and log == ["a"]


def test_a_pass_that_changes_the_type_is_refused() -> None:
    def run(function: Function) -> Function:
        return Function(function.params, Constant(np.zeros(3, "float32")))

    with pytest.raises(GraphError, match=r"pass wrong: .*\(2, 3\)"):
        Pass("wrong", 0, (), run)(_graph())
