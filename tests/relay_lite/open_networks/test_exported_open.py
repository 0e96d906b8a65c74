"""Files of torch.export with symbols for extents, which are committed files whose JSON has a symbol for the batch."""

from __future__ import annotations

import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
from relay_lite import GraphError
from relay_lite.frontend.torch.importer import import_graph
from relay_lite.frontend.torch.sizes import extent_of, sizes_of
from relay_lite.frontend.torch.traced import read_graph
from relay_lite.ir.extents import value_of
from tests.nonempty import nonempty
from tests.relay_lite.test_exported_programs import FOLDER

BATCH = 2


def with_batch(folder: Path, extent: Any, ranges: dict[str, Any], more: Callable[[Any], None] = lambda m: None) -> Path:
    """The pictures with another batch: as an integer, or as a symbol."""
    made = folder / "changed.pt2"
    with zipfile.ZipFile(FOLDER / "pictures.pt2") as old, zipfile.ZipFile(made, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith("models/model.json"):
                model = json.loads(data)
                tensors = model["graph_module"]["graph"]["tensor_values"]
                batched = [v for k, v in tensors.items() if not k.startswith(("p_", "b_")) and v["sizes"]]
                for value in batched:
                    if value["sizes"][0] == {"as_int": BATCH}:
                        value["sizes"][0] = extent
                model["range_constraints"] = ranges
                more(model)
                data = json.dumps(model).encode()
            new.writestr(name, data)
    return made


SYMBOL = {"as_expr": {"expr_str": "s77", "hint": {"as_int": BATCH}}}
BOUNDS = {"s77": {"min_val": 1, "max_val": 6}}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
def test_a_program_with_an_open_batch_runs_at_all_of_them(tmp_path: Path) -> None:
    module, _ = relay.frontend.from_exported_program(with_batch(tmp_path, SYMBOL, BOUNDS))
    (x,) = module["main"].params
    assert x.shape[0].range == (1, 6)
    net = relay.graph_executor.GraphModule(relay.build(module, "c")["default"]())
    for batch in nonempty((1, 2, 6)):
        data = np.random.default_rng(batch).standard_normal((batch, *x.shape[1:])).astype("float32")
        fixed, _ = relay.frontend.from_exported_program(with_batch(tmp_path, {"as_int": batch}, {}))
        want = relay.reference.run(fixed, [data])
        net.run(**{x.name: data})
        np.testing.assert_allclose(net.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)


def test_extents_are_read_as_text() -> None:
    sizes = sizes_of({"s77": (0, 8), "s27": (2, 5), "u0": (0, None)})
    assert sorted(sizes) == ["s27", "s77"]
    found = extent_of("2*s77*(s27 + 1) - 2*s77", sizes, "x")
    assert value_of(found, {sizes["s77"]: 3, sizes["s27"]: 4}) == 24
    assert extent_of("2*s77//2", sizes, "x") is extent_of("Max(1, s77)", sizes, "x") is sizes["s77"]


@pytest.mark.parametrize("text", ["u0", "s77 / 2", "Max(3, s77)", "s77**2", "s77 +", "__import__('os')"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(GraphError, match=r"^x: a static shape is needed, or an extent that torch.export.Dim"):
        extent_of(text, sizes_of({"s77": (1, 8)}), "x")


def viewed(model: Any) -> None:
    """A view by a size that the program computes, in place of the softmax at the end."""
    graph = model["graph_module"]["graph"]
    last = graph["nodes"][-1]
    name = last["inputs"][0]["arg"]["as_tensor"]["name"]
    all_of_them = {"as_expr": {"expr_str": f"{graph['tensor_values'][name]['sizes'][1]['as_int']}*s77"}}
    graph["sym_int_values"] = {"all": all_of_them}
    last["target"] = "torch.ops.aten.view.default"
    tensor = {"name": "self", "arg": {"as_tensor": {"name": name}}, "kind": 1}
    last["inputs"] = [tensor, {"name": "size", "arg": {"as_sym_ints": [{"as_name": "all"}]}, "kind": 1}]
    out = graph["tensor_values"][last["outputs"][0]["as_tensor"]["name"]]
    out["sizes"], out["strides"] = [all_of_them], [{"as_int": 1}]


def test_sizes_are_arguments(tmp_path: Path) -> None:
    module, _ = relay.frontend.from_exported_program(with_batch(tmp_path, SYMBOL, BOUNDS, viewed))
    assert str(module["main"].body.type) == "Tensor[(s77_5,), float32]"


class SymInt(str):
    """As torch's, in what is asked of it: its text."""


class Node:
    """As a node of torch.fx; `val` is what it gives, a shape for a tensor."""

    def __init__(self, op: str, name: str, target: str, args: tuple[Any, ...], val: Any) -> None:
        self.op, self.name, self.target, self.args, self.kwargs = op, name, target, args, dict[str, Any]()
        strides = [1] * len(val) if isinstance(val, list) else []
        tensor = SimpleNamespace(shape=val, dtype="torch.float32", stride=lambda: strides)
        self.meta = {"val": tensor if isinstance(val, list) else val}


def test_a_traced_graph_has_symbols() -> None:
    """A view of x (s77, 6) by (2 * s77, 3), as torch.fx has it; who computes sizes is left out."""
    n, rest = SymInt("s77"), SymInt("Max(3, s77)")
    x = Node("placeholder", "x", "x", (), [n, 6])
    size = Node("call_function", "sym_size", "aten.sym_size.int", (x, 0), n)
    twice = Node("call_function", "mul", "mul", (size, 2), SymInt("2*s77"))
    unused = Node("call_function", "sym_max", "sym_max", (size, 1), rest)
    view = Node("call_function", "view", "aten.view.default", (x, (twice, 3)), [SymInt("2*s77"), 3])
    schema = SimpleNamespace(arguments=[SimpleNamespace(name="self"), SimpleNamespace(name="size")])
    view.target = type("Overload", (str,), {"_schema": schema})("aten.view.default")
    nodes = [x, size, twice, unused, view, Node("output", "output", "output", ((view,),), None)]
    body = import_graph(read_graph(nodes, ["x"], {}, sizes_of({"s77": (1, 9)})))["main"].body
    assert str(body.type) == "Tensor[(s77_2, 3), float32]"
    with pytest.raises(GraphError, match=r"^tensor x: a static shape is needed, or an extent .*, got extent='s77'"):
        read_graph(nodes, ["x"], {})


@pytest.mark.parametrize("ends", [{}, {"s77": {"min_val": 2, "max_val": None}}])
def test_a_symbol_without_a_greatest_value_is_refused(ends: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"a static shape is needed, or an extent .*, got extent='s77'"):
        relay.frontend.from_exported_program(with_batch(tmp_path, SYMBOL, ends))
