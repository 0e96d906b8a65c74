"""What a network on a device does: inputs, outputs, zero copy, timing, and its way through files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.core.files.sealed_folder import DIGEST, signed
from relay_lite import graph_executor, reference
from relay_lite.compiler.build import build
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Expr, Function, Tuple, const
from relay_lite.ir.param_dict import load_param_dict, save_param_dict
from relay_lite.runtime.benchmark import BenchmarkResult
from relay_lite.runtime.graph_executor import GraphModule, UnknownInput, WrongShape
from relay_lite.runtime.library import NetworkLibrary, load
from tests.nonempty import nonempty
from tests.relay_lite.pass_graphs import Layers, relu

Array = np.ndarray[Any, np.dtype[Any]]


def network() -> Function:
    """Inputs x [2, 5, 7, 3] float32 and k [2, 4] int32; outputs [2, 4] and [2, 5, 7, 6]."""
    make = Layers(np.random.default_rng(4), "NHWC", "float32")
    x, k = var("x", (2, 5, 7, 3)), var("k", (2, 4), "int32")
    features: Expr = relu(make.bias(make.conv(x, 6)))
    for _ in range(3):
        features = relu(call("add", make.bias(make.conv(features, 6)), features))
    scores = call("add", make.tail(features, 4), call("cast", k, dtype="float32"))
    return Function((x, k), Tuple((call("nn.softmax", scores), features)))


NETWORK = network()


def drawn(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"x": rng.uniform(-1, 1, (2, 5, 7, 3)).astype("float32"), "k": rng.integers(0, 9, (2, 4)).astype("int32")}


def wanted(inputs: dict[str, Array]) -> list[Array]:
    return list(reference.run(NETWORK, inputs))


def check(module: GraphModule, inputs: dict[str, Array]) -> None:
    for k, want in nonempty(enumerate(wanted(inputs))):
        largest = float(np.abs(want).max(initial=0))
        np.testing.assert_allclose(module.get_output(k).numpy(), want, rtol=1e-4, atol=1e-6 * max(largest, 1))


@pytest.fixture(scope="module")
def library() -> NetworkLibrary:
    return build(NETWORK, target="c")


@pytest.fixture
def module(library: NetworkLibrary) -> GraphModule:
    return GraphModule(library["default"](ansor.device("c")))


def test_inputs_stay_until_they_are_set_again(module: GraphModule) -> None:
    first, second = drawn(0), drawn(1)
    module.set_input("x", first["x"])
    module.set_input(1, first["k"])
    module.run()
    check(module, first)
    module.run(k=second["k"])
    check(module, {"x": first["x"], "k": second["k"]})
    module.set_input(**second, unknown=np.zeros(3))
    module["run"]()
    check(module, second)


def test_values_of_other_kinds(module: GraphModule) -> None:
    inputs = drawn(2)
    module.set_input("x", ansor.nd.array(inputs["x"].astype("float64")))
    module.set_input("k", inputs["k"].tolist())
    module.run()
    check(module, inputs)
    every_second = np.zeros((2, 5, 7, 6), "float32")[:, :, :, ::2]
    every_second[...] = inputs["x"]
    module.run(x=every_second)
    check(module, inputs)


def test_two_modules_of_one_library_are_apart(library: NetworkLibrary) -> None:
    modules = [GraphModule(library["default"]()) for _ in range(2)]
    for seed, module in enumerate(modules):
        module.run(**drawn(seed))
    modules[1].set_input("p0", np.zeros(library.plan.params[0].shape))
    for seed, module in enumerate(modules):
        check(module, drawn(seed))
    modules[1].run()
    assert not np.allclose(modules[1].get_output(1).numpy(), wanted(drawn(1))[1])
    modules[0].run()
    check(modules[0], drawn(0))


def test_parameters_as_bytes(module: GraphModule) -> None:
    params = module.module.library.get_params()
    data = save_param_dict({**params, "unknown": np.zeros(3)})
    for name, value in load_param_dict(data).items():
        assert name == "unknown" or np.array_equal(value, params[name].numpy())
    for name in params:
        module.set_input(name, np.zeros(params[name].shape))
    module.load_params(data)
    module.run(**drawn(0))
    check(module, drawn(0))
    for spoiled in (b"", b"PK", data[: len(data) // 2], b"\x80\x04N."):
        with pytest.raises(GraphError, match="the bytes are not those of save_param_dict"):
            load_param_dict(spoiled)


def test_inputs_and_parameters_of_any_name() -> None:
    """Also names that Python's functions use for their own arguments."""
    rng = np.random.default_rng(8)
    values = {name: rng.uniform(-1, 1, (3,)).astype("float32") for name in ("key", "self", "value", "file")}
    key, me, value, file = [var(name, (3,)) for name in values]
    body = call("subtract", call("multiply", key, me), call("multiply", value, file))
    module = GraphModule(build(Function((key, me, value, file), body), target="c")["default"]())
    module.run(**values)
    want = values["key"] * values["self"] - values["value"] * values["file"]
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-5, atol=1e-6)
    given = {**values, "allow_pickle": np.zeros(2), "a.npy": np.float32(3)}
    back = load_param_dict(save_param_dict(given))
    assert list(back) == list(given) and all(np.array_equal(back[n], given[n]) for n in given)


def test_a_library_is_shown_without_its_bytes(library: NetworkLibrary) -> None:
    plan = library.plan
    kernels = len({step.kernel for step in plan.steps})
    assert repr(library) == f"NetworkLibrary(target='c', kernels={kernels}, parameters={len(plan.params)})"
    assert len(repr(library["default"]())) < 400


def test_two_parameters_of_one_name() -> None:
    a, b = var("x", (3,)), var("x", (3,))
    with pytest.raises(GraphError, match=r"the names of the parameters must differ, got twice=\['x'\]"):
        build(Function((a, b), call("subtract", a, b)), target="c")


def test_what_inputs_are_there(module: GraphModule) -> None:
    assert module.get_input_info() == ({"x": (2, 5, 7, 3), "k": (2, 4)}, {"x": "float32", "k": "int32"})
    assert module.get_num_inputs() == 2 + len(module.module.library.get_params())
    assert module.get_num_outputs() == 2
    assert [module.get_input_index(n) for n in ("x", "k", "p0", "y")] == [0, 1, 2, -1]
    module.set_input("x", drawn(5)["x"])
    for number in (0, np.int64(0)):
        np.testing.assert_array_equal(module.get_input(number).numpy(), drawn(5)["x"])
    p0 = module.module.library.values["p0"]
    np.testing.assert_array_equal(module.get_input("p0").numpy(), p0)


def test_errors(module: GraphModule) -> None:
    with pytest.raises(RuntimeError, match=r"^Could not find 'data' in graph's inputs$"):
        module.set_input("data", drawn(0)["x"])
    with pytest.raises(UnknownInput, match="Could not find '99'"):
        module.set_input(99, drawn(0)["x"])
    with pytest.raises(
        ValueError, match=r"array shape do not match the shape of NDArray \(5, 7, 3\) vs \(2, 5, 7, 3\)"
    ):
        module.set_input("x", drawn(0)["x"][0])
    with pytest.raises(UnknownInput, match="there are 2 outputs"):
        module.get_output(2)
    with pytest.raises(GraphError, match="functions are set_input"):
        module["debug_get_output"]
    with pytest.raises(GraphError, match="is made from lib"):
        GraphModule(module.module.library)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="its only module is 'default'"):
        module.module.library["main"]
    with pytest.raises(GraphError, match=r"which runs on cpu devices, got device='cuda\(0\)'"):
        module.module.library["default"](ansor.device("cuda"))
    with pytest.raises(GraphError, match="the only processor is number 0"):
        module.module.library["default"](ansor.cpu(1))


def test_inputs_that_were_never_set_are_named(module: GraphModule) -> None:
    """By every way to run; parameters have values, and what was set once stays set, however it was set."""
    inputs = drawn(3)
    with pytest.raises(GraphError, match=r"^GraphModule: inputs must be set before the network runs; missing: x, k$"):
        module.run()
    evaluator = module.time_evaluator("run", number=1, repeat=1)
    for run in (lambda: module.run(x=inputs["x"], data=0), evaluator, module.profile, module.benchmark,
                lambda: module.benchmark(end_to_end=True)):  # fmt: skip
        with pytest.raises(GraphError, match=r"missing: k$"):
            run()
    module.get_input("k").copyfrom(inputs["k"])
    module.run()
    check(module, inputs)
    assert evaluator().mean > 0
    GraphModule(module.module).run()
    other = GraphModule(module.module.library["default"]())
    other.set_input_zero_copy("x", ansor.nd.array(inputs["x"]))
    with pytest.raises(GraphError, match=r"missing: k$"):
        other.run()
    other.run(k=inputs["k"])
    check(other, inputs)


def test_copies_of_outputs(module: GraphModule) -> None:
    inputs = drawn(6)
    module.run(**inputs)
    shown = module.get_output(1)
    array = module.get_output(1, np.empty((2, 5, 7, 6), "float32"))
    held = module.get_output(1, ansor.nd.empty((2, 5, 7, 6)))
    with pytest.raises(WrongShape):
        module.get_output(1, np.empty((2, 5)))
    module.run(**drawn(7))
    for copy in (array, held.numpy()):
        np.testing.assert_allclose(copy, wanted(inputs)[1], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(shown.numpy(), wanted(drawn(7))[1], rtol=1e-4, atol=1e-5)


def test_zero_copy(module: GraphModule) -> None:
    inputs = drawn(8)
    module.set_input("k", inputs["k"])
    mine, out = ansor.nd.array(inputs["x"]), ansor.nd.empty((2, 5, 7, 6))
    module.set_input_zero_copy("x", mine)
    module.set_output_zero_copy(1, out)
    module.run()
    check(module, inputs)
    np.testing.assert_array_equal(out.numpy(), module.get_output(1).numpy())
    mine.copyfrom(inputs["x"] * 2)
    module.run()
    check(module, {"x": inputs["x"] * 2, "k": inputs["k"]})
    raw = np.zeros(2 * 5 * 7 * 3 + 17, "float32")
    crooked = raw[(64 - raw.ctypes.data % 64) // 4 + 1 :][: 2 * 5 * 7 * 3].reshape(2, 5, 7, 3)
    with pytest.raises(GraphError, match="start at a multiple of 64 bytes"):
        module.set_input_zero_copy("x", crooked)
    with pytest.raises(GraphError, match="the dtype must be int32"):
        module.set_input_zero_copy("k", np.zeros((2, 4)))
    with pytest.raises(WrongShape):
        module.set_input_zero_copy("k", np.zeros((2, 5), "int32"))
    fixed = ansor.nd.aligned_empty((2, 5, 7, 6), "float32")
    fixed.setflags(write=False)
    with pytest.raises(GraphError, match="the array must be writeable"):
        module.set_output_zero_copy(1, fixed)


def test_outputs_that_are_something_else_have_no_memory_to_exchange() -> None:
    """Another memory for such an output would be another memory for the input or the constant."""
    x, c = var("x", (5,)), const(np.arange(5, dtype="float32"))
    y = call("add", x, c)
    function = Function((x,), Tuple((y, c, x, relu(y), call("reshape", relu(y), newshape=(5, 1)), y)))
    module = GraphModule(build(function, target="c")["default"]())
    for k in (0, 1, 2, 5):
        with pytest.raises(GraphError, match=f"as well; copy it with get_output, got output={k}"):
            module.set_output_zero_copy(k, ansor.nd.empty((5,)))
    values = np.linspace(-3, 1, 5).astype("float32")
    module.run(x=values)
    for k, want in enumerate(reference.run(function, [values])):
        np.testing.assert_allclose(module.get_output(k).numpy(), want, rtol=1e-6)


def test_a_tensor_without_elements_is_refused_by_kernel() -> None:
    x = var("x", (0, 3))
    with pytest.raises(
        GraphError, match=r"kernel fused_nn_relu: .* positive integer or a size_var, got shape=\(0, 3\)"
    ):
        build(Function((x,), relu(x)), target="c")


def test_figures(module: GraphModule) -> None:
    inputs = drawn(9)
    result = module.benchmark(ansor.device("c"), repeat=4, number=3, **inputs)
    assert isinstance(result, BenchmarkResult) and len(result.results) == 4 and result.min > 0
    check(module, inputs)
    whole = module.benchmark(repeat=2, number=2, end_to_end=True, **inputs)
    assert len(whole.results) == 2
    evaluator = module.time_evaluator("run", ansor.cpu(), number=2, repeat=3, cache_flush_bytes=1 << 16)
    assert len(evaluator().results) == 3
    kernels = module.profile(number=2)
    assert [k for k, _ in kernels] == [s.kernel for s in module.plan.steps] and all(s > 0 for _, s in kernels)
    with pytest.raises(GraphError, match="the function is 'run'"):
        module.time_evaluator("get_output")
    with pytest.raises(GraphError, match=r"the network is on cpu\(0\)"):
        module.benchmark(ansor.gpu())


# --------------------------------------------------------------------------------------------------- files

SCRIPT = """
import sys
import numpy as np
import ansor, relay_lite
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.runtime.library import load
given = dict(np.load(sys.argv[2]))
module = GraphModule(load(sys.argv[1])["default"](ansor.device("c")))
module.run(**given)
np.savez(sys.argv[3], *[module.get_output(k).numpy() for k in range(module.get_num_outputs())])
"""


def test_export_and_load_in_another_process(library: NetworkLibrary, module: GraphModule, tmp_path: Path) -> None:
    inputs = drawn(3)
    module.run(**inputs)
    library.export(tmp_path / "network")
    np.savez(tmp_path / "in.npz", **inputs)
    env = {**os.environ, "PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)}  # no compiler can be found
    subprocess.run(
        [sys.executable, "-c", SCRIPT, tmp_path / "network", tmp_path / "in.npz", tmp_path / "out.npz"],
        check=True, env=env,
    )  # fmt: skip
    with np.load(tmp_path / "out.npz") as out:
        for k in range(2):
            np.testing.assert_array_equal(out[f"arr_{k}"], module.get_output(k).numpy())


def test_a_loaded_network_is_the_same(library: NetworkLibrary, tmp_path: Path) -> None:
    library.export_library(tmp_path / "network")
    again = load(tmp_path / "network")
    assert again.plan == library.plan and again.kernels == library.kernels and again.target == library.target
    assert again.graph_json == library.graph_json and again.ir_mod is None and library.ir_mod is not None
    again.export(tmp_path / "copy")
    for file in sorted(p for p in (tmp_path / "network").rglob("*") if p.is_file()):
        other = tmp_path / "copy" / file.relative_to(tmp_path / "network")
        assert file.suffix == ".npz" or file.read_bytes() == other.read_bytes()
    with pytest.raises(GraphError, match="the folder must be new or empty"):
        library.export(tmp_path / "copy")


def spoil_manifest(folder: Path, **changes: Any) -> None:
    file = folder / "manifest.json"
    facts = {**json.loads(file.read_text()), **changes}
    file.write_text(json.dumps(signed({name: value for name, value in facts.items() if name != DIGEST})))


def change_byte(file: Path) -> None:
    data = file.read_bytes()
    at = data.find(b"1")
    file.write_bytes(data[:at] + b"2" + data[at + 1 :])


SPOILED = {
    "no manifest": (lambda d: (d / "manifest.json").unlink(), "there is no manifest.json"),
    "no JSON": (lambda d: (d / "manifest.json").write_text("{"), "manifest.json is not JSON"),
    "another format": (lambda d: spoil_manifest(d, format="x"), "is not that of a network"),
    "another version": (lambda d: spoil_manifest(d, version=99), "this release reads version 2.*version=99"),
    "a path outside": (lambda d: spoil_manifest(d, files={"params.npz": 1, "../x": 1}), "must list files"),
    "no plan": (lambda d: spoil_manifest(d, plan={}), "plan: an object of storages, "),
    "no kernels": (lambda d: spoil_manifest(d, kernels=None), "kernels: a list is needed, got None"),
    "a changed byte": (lambda d: change_byte(d / "binary" / "network.so"), "network.so is not what was exported"),
    "a changed source": (lambda d: change_byte(next((d / "source").iterdir())), "is not what was exported"),
    "a changed manifest": (lambda d: change_byte(d / "manifest.json"), "manifest.json is not"),
    "a missing file": (lambda d: (d / "binary" / "network.so").unlink(), "a file is missing, got file='binary/"),
    "a cut file": (lambda d: (d / "params.npz").write_bytes(b"PK"), "params.npz must have"),
}  # fmt: skip


@pytest.mark.parametrize("what", SPOILED)
def test_a_spoiled_folder(library: NetworkLibrary, tmp_path: Path, what: str) -> None:
    spoil, law = SPOILED[what]
    library.export(tmp_path / "network")
    load(tmp_path / "network")
    spoil(tmp_path / "network")
    with pytest.raises(GraphError, match=law):
        load(tmp_path / "network")


def test_a_machine_that_does_not_fit(library: NetworkLibrary, tmp_path: Path) -> None:
    library.export(tmp_path / "network")
    facts = dict(library.machine)
    for change, law in (
        ({"machine": "vax"}, "was compiled for 'vax'; build it here"),
        ({"instructions": [*facts["instructions"], "avx9000"]}, r"this processor lacks.*missing=\['avx9000'\]"),
    ):
        spoil_manifest(tmp_path / "network", machine={**facts, **change})
        with pytest.raises(GraphError, match=law):
            load(tmp_path / "network")["default"]()


def test_names_of_the_module() -> None:
    assert set(graph_executor.METHODS) <= set(dir(GraphModule))
