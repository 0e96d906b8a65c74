"""`ansor tune-network`: what it prints, what it leaves in the log, how it goes on, its exit codes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import ansor
from ansor.cli.main import main
from ansor.core.errors import BudgetError
from relay_lite.frontend.onnx.model import read_model
from relay_lite.ir.errors import GraphError
from relay_lite.testing.live import before_softmax
from relay_lite.tuning import cli
from relay_lite.tuning.network import load_network
from relay_lite.tuning.network_times import NetworkTimes, TaskTime, network_times, total_text
from relay_lite.tuning.tune_network import WrongResult, check, compile_best, has_large_tiles, progress, tune
from tests.relay_lite import onnx_models

MLP = ["tune-network", "mlp", "--log", "log.json", "--seed", "3"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(cli, "MIN_REPEAT_MS", 1)
    return tmp_path


def lines(log: Path) -> list[str]:
    return [line for line in log.read_text().splitlines() if line.startswith("{")]


@pytest.mark.long
def test_a_network_by_name_and_going_on(
    here: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Trials count those of the log: the same command adds nothing, a larger number what is missing."""
    assert main([*MLP, "--trials", "5", "--export", "made"]) == 0
    out = capsys.readouterr().out
    assert "4 tasks; log.json holds 0 trials, 5 are asked for" in out and out.count("[ Task Scheduler ]") == 6
    assert "mlp-NHWC-B1: results agree with the reference: largest error" in out
    assert "Execution time summary:" in out and "too little" not in out
    assert re.search(
        r"Estimated total latency: [\d.]+ ms  Measured end to end: [\d.]+ ms  Difference: ([+-][\d.]+%|a factor of)",
        out,
    )
    assert len(lines(here / "log.json")) == 5 and (here / "made").is_dir()
    assert main([*MLP, "--trials", "5"]) == 0
    assert (
        "log.json holds 5 trials, 5 are asked for" in (out := capsys.readouterr().out) and "Task Scheduler" not in out
    )
    assert len(lines(here / "log.json")) == 5
    assert main([*MLP, "--trials", "7", "--verbose", "0"]) == 0
    assert len(lines(here / "log.json")) == 7 and "Task Scheduler" not in capsys.readouterr().out
    inputs, _ = ansor.RecordReader("log.json").read_lines()
    assert len({(i.task.workload_key, i.steps) for i in inputs}) == 7
    assert "no record" not in caplog.text


@pytest.mark.slow
def test_a_model_of_open_extents(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The weights of the model, its open extents filled in, its convolutions turned to NHWC."""
    path = here / "model.onnx"
    onnx_model(path)
    command = ["tune-network", str(path), "--batch-size", "2", "--image-size", "9x7", "--trials", "8"]
    assert main([*command, "--verbose", "0"]) == 0
    assert "model-NHWC-B2: results agree with the reference" in capsys.readouterr().out
    texts = [str(i.task.compute_dag) for i in ansor.RecordReader("model-NHWC-B2-c.json").read_lines()[0]]
    assert any("conv2d_nhwc" in text and "[2, 9, 7, 3]" in text for text in texts)


def onnx_model(path: Path) -> None:
    """relu(conv(x)) then a classifier, on pictures of free size."""
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(5)
    helper, array = onnx.helper, onnx.numpy_helper.from_array
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "g"], ["y"], transB=1),
    ]
    weights = [
        array(rng.normal(size=(5, 3, 3, 3)).astype("float32"), "w"),
        array(rng.normal(size=(4, 5)).astype("float32"), "g"),
    ]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 3, "h", "w"])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "model", [x], [y], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def test_an_operator_that_is_not_supported_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    info = onnx.helper.make_tensor_value_info
    node = onnx.helper.make_node("Bernoulli", ["x"], ["y"], name="toss")
    x, y = info("x", onnx.TensorProto.FLOAT, [2, 3]), info("y", onnx.TensorProto.FLOAT, [2, 3])
    graph = onnx.helper.make_graph([node], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), "toss.onnx")
    assert main(["tune-network", "toss.onnx"]) == 2
    err = capsys.readouterr().err
    assert "Bernoulli" in err and "toss" in err and err.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "code", "text"),
    [
        (["resnet-17"], 2, "network: did you mean resnet-18? networks are resnet-18, "),
        (["my_file.py"], 2, "network: a model is a file that ends in .onnx or .pt2, got 'my_file.py'"),
        (["nothing.onnx"], 2, "nothing.onnx must be readable"),
        (["nothing.onnx", "--image-size", "9x9x9"], 2, "an image has a height and a width"),
        (["mlp", "--layout", "HWCN"], 2, "layouts are NHWC and NCHW"),
        (["mlp", "--trials", "-1"], 2, "--trials: a number of at least 0 is needed"),
        (["mlp", "--trials", "3"], 2, "each of the 4 tasks without a record needs a trial"),
        (["mlp", "--batch-size", "0"], 2, "--batch-size: a positive number"),
        (["mlp", "--seed", "-1"], 2, "--seed: the seed must be"),
        (["resnet-18", "--image-size", "9x"], 2, "--image-size: positive numbers"),
        (["resnet-18", "--image-size", "9x9x9"], 2, "its image has no such extents"),
        (["bert-base", "--image-size", "9"], 2, "the network has no image"),
        (["mlp", "--shape", "1,3"], 2, "--shape: an input and its extents are needed"),
        (["mlp", "--shape", "data=1,3"], 2, "shapes and values of inputs are for ONNX models"),
        (["mlp", "--fix", "data=1"], 2, "shapes and values of inputs are for ONNX models"),
        (["mlp", "--fix", "data"], 2, "--fix: an input and its value are needed, once each, as in sr=16000"),
        (["mlp", "--fix", "data=x"], 2, "--fix: an input and its value are needed"),
        (["mlp", "--target", "abacus"], 2, "target 'abacus': unknown"),
        (["mlp", "--log", "/dev/full/x"], 3, "cannot be written"),
    ],
)
def test_errors_are_one_sentence(
    here: Path, capsys: pytest.CaptureFixture[str], command: list[str], code: int, text: str
) -> None:
    assert main(["tune-network", *command]) == code
    err = capsys.readouterr().err
    assert text in err and err.startswith("ansor: ") and err.count("\n") == 1


def test_trials_that_do_not_reach_all_tasks_are_refused_in_words_of_the_command(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*MLP, "--more", "1"]) == BudgetError.exit_code
    law = "each of the 4 tasks without a record needs a trial: --more 4 or --trials 4 is the least"
    assert f"ansor: --trials: {law}, --trials 0 compiles without any" in capsys.readouterr().err
    assert not (here / "log.json").exists()


def test_a_folder_that_holds_something_is_refused_before_tuning(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "made").mkdir()
    (here / "made" / "notes.txt").write_text("mine")
    assert main([*MLP, "--trials", "5", "--export", "made"]) == 2
    assert capsys.readouterr().err == "ansor: export to made: the folder must be new or empty\n"
    assert not (here / "log.json").exists()


def test_a_network_with_nothing_to_tune(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx")
    x, y = [onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 3]) for n in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), "relu.onnx")
    assert main(["tune-network", "relu.onnx"]) == 0
    out = capsys.readouterr().out
    assert "has 0 tasks" in out and "results agree" in out and "1 other kernels" in out
    lengths = {len(line) for line in out.splitlines() if line.startswith("| ")}
    assert len(lengths) == 1


def test_ctrl_c(here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object, **kwargs: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "tune", interrupted)
    assert main(MLP) == 130
    assert capsys.readouterr().err == "stopped; nothing was measured yet\n"
    (here / "log.json").write_text("# held\n")
    assert main(MLP) == 130
    assert capsys.readouterr().err == "stopped; everything measured is in log.json\n"


@pytest.mark.parametrize(
    ("estimated", "text"), [(1.1e-3, "-9.1%"), (1e-5, "a factor of 100, too much for a comparison: the machine was")]
)
def test_an_estimate_that_is_far_off_is_no_percentage(estimated: float, text: str) -> None:
    task = ansor.SearchTask("matmul", (13, 11, 7), target="c")
    times = NetworkTimes((TaskTime(task, 1, 4, estimated, 1e-3),), {}, 1e-3)
    assert f"Difference: {text}" in total_text(times)


@pytest.mark.long
def test_a_wrong_network_is_found_and_times_add_up(here: Path) -> None:
    """A weight changed by a hundredth after compiling is an error; without records nothing is estimated."""
    network = load_network("mlp", batch_size=2, image_size=(5, 3), seed=1)
    tasks, weights = ansor.extract_tasks(network.graph, network.params, "c")
    log = here / "log.json"
    log.touch()
    module = compile_best(network, "c", log)
    good = check(module, network, np.random.default_rng(2))
    assert good.error < 1e-5 and good.limit == 1e-4 and good.contrast > 0.01
    wrong = dict(network.params)
    wrong["fc2_weight"] = wrong["fc2_weight"] * np.float32(1.01)
    other = type(network)(network.name, network.graph, wrong, network.original)
    with pytest.raises(WrongResult, match="mlp-NHWC-B2: its results may differ") as caught:
        check(module, other, np.random.default_rng(2))
    assert caught.value.exit_code == 1
    times = network_times(module, tasks, weights, progress(log, tasks), 1e-3, calls=2)
    assert times.estimated is None and times.difference is None
    assert tune(tasks, weights, log, 4, seed=1, verbose=0).trials == 4
    times = network_times(module, tasks, weights, progress(log, tasks), 1e-3, calls=2)
    costs = [s.cost for s in progress(log, tasks)]
    assert times.estimated == pytest.approx(np.dot(costs, weights))
    assert times.difference == pytest.approx(1e-3 / np.dot(costs, weights) - 1)
    assert [t.weight for t in times.tasks] == weights and all(t.measured > 0 for t in times.tasks)


def test_live_networks_keep_their_tasks() -> None:
    """The weights change values, not computations: tasks and records are those of the network by its name."""
    from relay_lite.compiler.optimize import optimize
    from relay_lite.testing import get_workload
    from relay_lite.transform import PassContext

    network = load_network("resnet-18", layout="NCHW", image_size=(40, 33))
    assert network.graph["main"].params[0].shape == (1, 3, 40, 33)
    plain = get_workload("resnet-18", layout="NCHW", image_shape=(3, 40, 33))
    live, fixed = [ansor.extract_tasks(*w, "c")[0] for w in ((network.graph, network.params), plain)]
    assert [t.workload_key for t in live] == [t.workload_key for t in fixed]
    with PassContext(opt_level=3):
        assert not has_large_tiles(optimize(network.graph, network.params, "cuda"))
        nhwc = load_network("resnet-18", image_size=(64,))
        assert has_large_tiles(optimize(nhwc.graph, nhwc.params, "cuda"))
    assert before_softmax(nhwc.graph).body is not nhwc.graph["main"].body


def test_what_an_onnx_model_leaves_open_and_nothing_fills(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx_model(here / "model.onnx")
    assert read_model(here / "model.onnx").graph.inputs[0].shape == ("n", 3, "h", "w")
    with pytest.raises(GraphError, match=r"input.*x"):
        load_network("model.onnx")
    assert main(["tune-network", "model.onnx"]) == GraphError.exit_code
    said = capsys.readouterr().err
    assert said.startswith(
        "ansor: model.onnx: extents of its inputs are open, say them by --shape x=1,3,8,8 (or by --b"
    )
    assert said.endswith("got x='n,3,h,w'\n")
    network = load_network("model.onnx", shapes={"x": (3, 3, 8, 5)}, layout="NCHW")
    assert network.inputs(np.random.default_rng(0))["x"].shape == (3, 3, 8, 5)
    assert onnx_models.operators(network.graph)[0] == "nn.conv2d"
