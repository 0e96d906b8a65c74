"""What is handed to the functions on whole networks, looked at before anything is done with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import ansor
import relay_lite as relay
from relay_lite.runtime.graph_executor import GraphModule
from te_lite.errors import TeError

X: Any = relay.var("x", shape=(1, 4))
NETWORK = relay.Function([X], relay.nn.relu(X))
WRONG: Any = 5
GRAPH = "an IRModule or a Function is needed, such as relay.Function"
MAPPING = "^parameters: a mapping from names to arrays is needed, got 'list'$"

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: relay.build(WRONG), f"^network: {GRAPH}"),
    (lambda: ansor.extract_tasks(WRONG, {}, "c"), f"^network: {GRAPH}"),
    (lambda: ansor.extract_tasks(NETWORK, WRONG, "c"), "^parameters: a mapping from names to arrays is needed"),
    (lambda: ansor.extract_tasks(NETWORK, None, "c", opt_level="x"), "^pass context: opt_level is a whole number"),
    (lambda: ansor.extract_tasks(NETWORK, None, "c", dump_workload_to_dag_log=WRONG), "^name of a file: a text or"),
    (lambda: relay.build(NETWORK, params=[]), MAPPING),
    (lambda: relay.build(NETWORK, params=[1]), MAPPING),
    (lambda: relay.transform.FuseOps()(WRONG), "^pass FuseOps: works on an IRModule or a Function, got 'int'$"),
    (lambda: relay.transform.Sequential(WRONG), "^pass sequential: a list of passes is needed.* got 5$"),
    (lambda: relay.transform.Sequential([WRONG]), r"^pass sequential: a list of passes is needed.* got \[5\]$"),
    (lambda: relay.concatenate(WRONG, 0), "^tuple: a list of nodes is needed, got 5$"),
    (lambda: ansor.device(WRONG), "^device: the kind is a text, such as 'c', got 5$"),
]


@pytest.mark.parametrize(("function", "text"), REFUSED)
def test_what_is_no_network_is_a_sentence(function: Callable[[], Any], text: str) -> None:
    with pytest.raises(TeError, match=text):
        function()


def test_what_is_no_device_or_output_is_a_sentence() -> None:
    lib = relay.build(NETWORK, target="c")
    with pytest.raises(relay.GraphError, match=r"^network: a device is needed, such as ansor.device\('c'\), got 5$"):
        lib["default"](WRONG)
    module = GraphModule(lib["default"](ansor.device("c")))
    for index in (1, -1, "a", None):
        with pytest.raises(relay.GraphError, match=f"there are 1 outputs, got index={index!r}$"):
            module.get_output(index)  # type: ignore[arg-type]
