"""Programs of torch.export are read from small committed files, without torch (tests/torch/exported.py wrote them)."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relay_lite as relay
from ansor.cli.main import main
from ansor.core.device.nd import aligned_copy
from relay_lite import Call, GraphError, graph_executor, post_order, reference
from relay_lite.tuning.network import load_network
from tests.nonempty import nonempty

FOLDER = Path(__file__).parent.parent / "golden" / "exported"
NAMES = sorted(path.stem for path in FOLDER.glob("*.pt2"))
Change = Callable[[dict[str, Any]], None]


def values(name: str, kind: str) -> list[Any]:
    with np.load(FOLDER / f"{name}.npz") as file:
        return [file[f"{kind}{k}"] for k in range(sum(key.startswith(kind) for key in file))]


def close(got: Any, want: Any, limit: float) -> None:
    assert got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=0, atol=limit * np.abs(want).max())


def test_there_are_files() -> None:
    assert NAMES == ["pictures", "tokens", "weights", "windows"]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_gives_what_pytorch_gave(name: str) -> None:
    mod, params = relay.frontend.from_exported_program(FOLDER / f"{name}.pt2")
    assert params == {}
    given = {v.name: x for v, x in zip(mod["main"].params, values(name, "input"), strict=True)}
    found = reference.run(mod, given, {})
    outputs = found if isinstance(found, tuple) else (found,)
    for got, want in zip(outputs, values(name, "output"), strict=True):
        close(got, want, 1e-2 if str(got.dtype) == "bfloat16" else 2e-6)


@pytest.mark.long
def test_a_program_is_compiled() -> None:
    """It reads and writes memory of the caller, too, when it is pointed there."""
    mod, _ = relay.frontend.from_exported_program(str(FOLDER / "tokens.pt2"))
    on_device = relay.build(mod, target="c")["default"](relay.cpu())
    module = graph_executor.GraphModule(on_device)
    module.run(**{mod["main"].params[0].name: values("tokens", "input")[0]})
    wanted = values("tokens", "output")
    for k, want in nonempty(enumerate(wanted)):
        close(module.get_output(k).numpy(), want, 1e-5)
    plan, given = module.plan, aligned_copy(values("tokens", "input")[0])
    made = [aligned_copy(np.full(place.shape, -1, place.dtype)) for place in plan.outputs]
    on_device.executor.point(plan.inputs[0].storage, given.ctypes.data)
    for place, array in zip(plan.outputs, made, strict=True):
        on_device.executor.point(place.storage, array.ctypes.data)
    on_device.executor.run()
    for got, want in nonempty(zip(made, wanted, strict=True)):
        close(got, want, 1e-5)


def changed(tmp_path: Path, change: Change, leave_out: str = "-", path: str = "models/model.json") -> Path:
    """A file with a JSON entry changed, and without entries that are called so."""
    with zipfile.ZipFile(FOLDER / "weights.pt2") as old, zipfile.ZipFile(tmp_path / "changed.pt2", "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name.endswith(path):
                model = json.loads(data)
                change(model)
                data = json.dumps(model).encode()
            if not name.endswith(leave_out):
                new.writestr(name, data)
    return tmp_path / "changed.pt2"


def nodes(model: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = model["graph_module"]["graph"]["nodes"]
    return found


def rename(model: dict[str, Any]) -> None:
    nodes(model)[0]["target"] = "torch.ops.mine.spin.default"


def open_extent(model: dict[str, Any]) -> None:
    model["graph_module"]["graph"]["tensor_values"]["x"]["sizes"][0] = {"as_expr": {"expr_str": "s0"}}


def another_shape(model: dict[str, Any]) -> None:
    tensors = model["graph_module"]["graph"]["tensor_values"]
    tensors[nodes(model)[-1]["outputs"][0]["as_tensor"]["name"]]["sizes"][0] = {"as_int": 4}


def writes(model: dict[str, Any]) -> None:
    model["graph_module"]["signature"]["output_specs"].append({"buffer_mutation": {"buffer_name": "b", "arg": {}}})


def unknown_argument(model: dict[str, Any]) -> None:
    nodes(model)[0]["inputs"].append({"name": "twist", "arg": {"as_int": 3}, "kind": 1})


def newer(model: dict[str, Any]) -> None:
    model["schema_version"]["major"] = 9


def nothing(model: dict[str, Any]) -> None:
    """As it was."""


MODELS: dict[str, tuple[Change, str]] = {
    "operator": (rename, "these operators are not supported: mine.spin.default"),
    "open": (open_extent, "a static shape is needed"),
    "shape": (another_shape, "its result must have the shape that the program states"),
    "writes": (writes, "it must not write to buffers or inputs"),
    "argument": (unknown_argument, "these arguments are not supported, got twist='3'"),
    "version": (newer, "schemas of version 8 are read, got version=9"),
}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_refused_is_said_in_a_sentence(name: str, tmp_path: Path) -> None:
    change, sentence = MODELS[name]
    with pytest.raises(GraphError, match=sentence):
        relay.frontend.from_exported_program(changed(tmp_path, change))


def pickled(config: dict[str, Any]) -> None:
    config["config"]["one"]["use_pickle"] = True


def too_large(config: dict[str, Any]) -> None:
    config["config"]["one"]["tensor_meta"]["sizes"][0] = {"as_int": 5}


def backwards(config: dict[str, Any]) -> None:
    config["config"]["one"]["tensor_meta"]["strides"][0] = {"as_int": -4}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [(pickled, "this one is pickled"), (too_large, "its file must hold it"), (backwards, "at least 0 is needed")],
)
def test_weights_that_do_not_fit_are_refused(change: Change, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=sentence):
        relay.frontend.from_exported_program(changed(tmp_path, change, path="data/weights/model_weights_config.json"))


def test_files_that_are_none_are_refused(tmp_path: Path) -> None:
    empty, text = tmp_path / "empty.pt2", tmp_path / "text.pt2"
    zipfile.ZipFile(empty, "w").close()
    text.write_text("no archive")
    missing = changed(tmp_path, nothing, leave_out="weight_0")
    for path, sentence in ((empty, "torch 2.8 or later"), (text, "BadZipFile"), (tmp_path / "no.pt2", "FileNotFound"),
                           (missing, "KeyError")):  # fmt: skip
        with pytest.raises(GraphError, match=sentence):
            relay.frontend.from_exported_program(path)
    with pytest.raises(GraphError, match="ExportedProgram is needed, got type='int'"):
        relay.frontend.from_exported_program(3)


def test_a_file_with_wrong_bytes_gives_an_error_or_a_graph(tmp_path: Path) -> None:
    said = [refusal(seed, tmp_path) for seed in range(40)]
    refused = [sentence for sentence in said if sentence is not None]
    assert refused and not any("\n" in sentence for sentence in refused)


def refusal(seed: int, folder: Path) -> str | None:
    """What is said of a file with three wrong bytes in one of its parts; None where it can be read."""
    rng = np.random.default_rng(seed)
    with zipfile.ZipFile(FOLDER / "weights.pt2") as archive:
        data = {name: bytearray(archive.read(name)) for name in archive.namelist()}
    name = rng.choice(sorted(data))
    for place in rng.integers(0, len(data[name]), 3) if len(data[name]) else ():
        data[name][place] = rng.integers(32, 127)
    with zipfile.ZipFile(folder / "wrong.pt2", "w") as archive:
        for entry, content in data.items():
            archive.writestr(entry, bytes(content))
    try:
        relay.frontend.from_exported_program(folder / "wrong.pt2")
    except GraphError as error:
        return str(error)
    return None


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import ansor, relay_lite, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_exported_program_is_a_network_to_tune() -> None:
    network = load_network(str(FOLDER / "pictures.pt2"))
    assert network.name == "pictures-NHWC"
    assert network.inputs(np.random.default_rng(0))["x"].shape == (2, 3, 17, 14)
    calls = [n for n in post_order(network.graph["main"].body) if isinstance(n, Call) and n.op.name == "nn.conv2d"]
    assert {n.attrs["data_layout"] for n in calls} == {"NHWC"}
    with pytest.raises(GraphError, match="shapes and values of inputs are for ONNX models"):
        load_network("model.pt2", shapes={"x": (1, 2)})


@pytest.mark.slow
def test_an_exported_program_is_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = str(tmp_path / "log.json")
    assert main(["tune-network", str(FOLDER / "windows.pt2"), "--trials", "6", "--log", log]) == 0
    assert "windows-NHWC: results agree with the reference" in capsys.readouterr().out


def test_either_a_network_or_a_function_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["mlp", "--torch", "a:b"]):
        assert main(["tune-network", *words]) != 0
        assert "either a network or --torch is needed" in capsys.readouterr().err
    assert main(["tune-network", "--torch", "model"]) != 0
    assert "a module and a function are needed, as in package.module:function" in capsys.readouterr().err


def test_a_function_that_gives_no_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "given.py").write_text("def nothing():\n    return 3\n")
    assert main(["tune-network", "--torch", f"{tmp_path / 'given.py'}:nothing"]) != 0
    assert "the function must give a model and a tuple of inputs" in capsys.readouterr().err
