"""TVM's tutorial page on tuning for VTA, in simulation, and what its names do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ansor.autotvm import ApplyHistoryBest, MeasureInput, RunOptions, record
from ansor.autotvm import task as template_task
from ansor.autotvm.measure import Refusal
from ansor.core.device.nd import DeviceId
from ansor.core.errors import BackendError
from ansor.core.tasks.measure_values import MeasureResult
from relay_lite.ir.errors import GraphError
from tests.fleet.cluster import free_port
from tests.test_examples import PATHS, ROOT, run
from tests.vta_sim.networks import images, quantized
from vta_sim.backend import Trials
from vta_sim.core.errors import CompileError, ConfigError
from vta_sim.graph import graph_pack
from vta_sim.graph.reference import run_kernel
from vta_sim.network.device_kernels import DeviceKernels
from vta_sim.network.library import build, load_library
from vta_sim.top import requantized, templates
from vta_sim.tvm_names import autotvm, graph_runtime, relay, rpc, te, topi, tvm, utils, vta

BAR = r"\[Task +(\d+)/10\]  Current/Best: +[\d.]+/ +([\d.]+) GFLOPS \| Progress: \((\d+)/(\d+)\) \| [\d.]+ s Done\."
LAYERS = """(1, 2, 2, 256, 512, 1, 1, 0, 0, 2, 2)
(1, 4, 4, 128, 256, 1, 1, 0, 0, 2, 2)
(1, 8, 8, 64, 128, 1, 1, 0, 0, 2, 2)
(1, 8, 8, 64, 64, 3, 3, 1, 1, 1, 1)
(1, 4, 4, 128, 128, 3, 3, 1, 1, 1, 1)
(1, 8, 8, 64, 128, 3, 3, 1, 1, 2, 2)
(1, 2, 2, 256, 256, 3, 3, 1, 1, 1, 1)
(1, 4, 4, 128, 256, 3, 3, 1, 1, 2, 2)
(1, 1, 1, 512, 512, 3, 3, 1, 1, 1, 1)
(1, 2, 2, 256, 512, 3, 3, 1, 1, 2, 2)
"""


PAGE = """\
    with tvm.transform.PassContext(opt_level=3):
        with relay.quantize.qconfig(global_scale=8.0, skip_conv_layers=[0]):
            mod = relay.quantize.quantize(mod, params=params)
env = vta.get_env()
target = env.target if device == "vta" else env.target_vta_cpu
start_pack = "nn.max_pool2d"
        builder=autotvm.LocalBuilder(),
        runner=autotvm.RPCRunner(
            env.TARGET,
            check_correctness=True,
            tuner_obj = XGBTuner(tsk, loss_type="rank", feature_type="knob")
                tuner_obj.load_history(autotvm.record.load_from_file(tmp_log_file))
                autotvm.callback.progress_bar(tsk_trial, prefix=prefix),
                autotvm.callback.log_to_file(tmp_log_file),
    autotvm.record.pick_best(tmp_log_file, log_filename)
    @tvm.te.tag_scope(tag=topi.tag.ELEMWISE)
    @autotvm.template("conv2d_packed.vta")
            s = vta.top.schedule_conv2d_packed([res])
    tasks = autotvm.task.extract_from_program(
        ops=(relay.op.get("nn.conv2d"),),
    tasks = list(filter(lambda t: len(t.args[0][1]) > 4, tasks))
        remote = rpc.LocalSession()
    with autotvm.tophub.context(target, extra_files=[log_file]):
            with vta.build_config(opt_level=3, disabled_pass={"AlterOpLayout"}):
        lib.export_library(temp.relpath("graphlib.tar"))
        remote.upload(temp.relpath("graphlib.tar"))
        lib = remote.load_module("graphlib.tar")
        ctx = remote.ext_dev(0) if device == "vta" else remote.cpu(0)
        m = graph_runtime.GraphModule(lib["default"](ctx))
        timer = m.module.time_evaluator("run", ctx, number=1, repeat=10)
tune_and_evaluate(tuning_option)
"""


def test_the_code_is_that_of_the_page() -> None:
    code = (ROOT / "examples" / "tutorials" / "tune_relay_vta.py").read_text().splitlines()
    assert [line for line in code if line in PAGE.splitlines()] == PAGE.splitlines()


@pytest.mark.long
def test_the_page_runs(tmp_path: Path) -> None:
    """Pictures of 32x32, so the layers are those of the page with 8, 4, 2 and 1 rows; in the same order."""
    small = {"ANSOR_TRIALS": "3", "ANSOR_IMAGE": "32", "PYTHONPATH": PATHS}
    done = run("tutorials/tune_relay_vta.py", tmp_path, **small)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"Extract tasks...\nExtracted 10 conv2d tasks:\n{LAYERS}Tuning...\n")
    bars = re.findall(BAR, done.stdout)
    assert [int(number) for number, *_ in bars] == list(range(1, 11))
    assert {(done, total) for _, _, done, total in bars} == {("3", "3")}
    assert re.search(r"Compile\.\.\.\nUpload\.\.\.\nEvaluate inference time cost\.\.\.\n", done.stdout)
    assert re.search(r"Mean inference time \(std dev\): [\d.]+ ms \([\d.]+ ms\)\n$", done.stdout)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["vta.resnet18_v1.log"]
    pairs = list(record.load_from_file(tmp_path / "vta.resnet18_v1.log"))
    found = sum(float(best) > 0 for _, best, *_ in bars)
    assert len(pairs) == found and all(inp.target.endswith("-model=sim_1x16_i8w8a32_15_15_18_17") for inp, _ in pairs)


# -------------------------------------------------------------------------------------------------------- templates


@pytest.fixture
def page_template() -> Iterator[None]:
    """The template as the page defines it; the one of vta_sim.top.templates is put back afterwards."""
    before = dict(template_task._TEMPLATES)

    @te.tag_scope(tag=topi.tag.ELEMWISE)
    def my_clip(x, low, high):  # type: ignore[no-untyped-def]
        low, high = tvm.tir.const(low, x.dtype), tvm.tir.const(high, x.dtype)
        x = te.compute(x.shape, lambda *i: tvm.te.min(x(*i), high), name="clipA")
        return te.compute(x.shape, lambda *i: tvm.te.max(x(*i), low), name="clipB")

    @autotvm.template("conv2d_packed.vta")
    def _conv(*args):  # type: ignore[no-untyped-def]
        with tvm.target.vta():
            res = topi.cast(my_clip(topi.right_shift(vta.top.conv2d_packed(*args), 8), 0, 127), "int8")
        assert tvm.target.Target.current().device_name == "vta"
        assert [op.tag for op in (res.op, res.op.input_tensors()[0].op)] == ["elemwise"] * 2
        return vta.top.schedule_conv2d_packed([res]), [*args[:2], res]

    yield
    template_task._TEMPLATES.clear()
    template_task._TEMPLATES.update(before)


def conv_task() -> autotvm.task.Task:
    data, kernel = te.placeholder((1, 2, 6, 6, 1, 16), dtype="int8"), te.placeholder((2, 2, 3, 3, 16, 16), dtype="int8")
    args = (data, kernel, (1, 1), (1, 1), (1, 1), "NCHW1n16c", "int32")
    return autotvm.task.create("conv2d_packed.vta", args=args, target=vta.get_env().target)


def test_the_template_of_the_page_is_ours(page_template: None) -> None:
    """Same knobs, same operations, same times; every fifth configuration."""
    page = conv_task()
    page_results = outcomes(page)
    template_task._TEMPLATES["conv2d_packed.vta"] = templates._conv2d
    ours = conv_task()
    assert list(page.config_space) == list(ours.config_space) and page.flop == ours.flop
    assert page_results == outcomes(ours)
    assert len({type(x) for x in page_results}) == 2, "both valid and refused ones are needed"


def outcomes(task: autotvm.task.Task) -> list[float | str]:
    trials, found = Trials(), []
    for index in range(0, len(task.config_space), 15):
        program = trials.build(task, task.config_space.get(index))
        result = program if isinstance(program, Refusal) else trials.run(task, program, RunOptions())
        found.append(result.reason if isinstance(result, Refusal) else result[0])
    return found


# ---------------------------------------------------------------------------------------------------------- library


def records() -> list[tuple[MeasureInput, MeasureResult]]:
    """A best record for the first task: another one than the default tiles."""
    task = autotvm.task.extract_from_program(packed(), target=vta.get_env().target)[3]
    space = task.config_space
    index = next(k for k in range(len(space)) if not isinstance(Trials().build(task, space.get(k)), Refusal))
    inp = MeasureInput(task.target_text, task, space.get(index))
    return [(inp, MeasureResult((1e-3,), 0, "", 0.1, 0))]


def packed() -> relay.Function:
    return graph_pack(quantized(), 1, 16, 8, device_annot=True)


@pytest.mark.long
def test_a_library_goes_through_a_file() -> None:
    """What is loaded computes the same, with the configurations that were chosen when it was built."""
    pairs = records()
    with ApplyHistoryBest(pairs):
        lib = relay.build(packed(), target=vta.get_env().target, params={}, target_host="c")
    assert list(lib.configs) == [pairs[0][0].workload]
    temp = utils.tempdir()
    path = temp.relpath("graphlib.tar")
    lib.export_library(path)
    remote = rpc.LocalSession()
    vta.reconfig_runtime(remote)
    vta.program_fpga(remote, bitstream=None)
    remote.upload(path)
    module = graph_runtime.GraphModule(remote.load_module("graphlib.tar")["default"](remote.ext_dev(0)))
    image = images(1, seed=3)[0]
    module.set_input("data", tvm.nd.array(image))
    module.run()
    got = module.get_output(0).numpy()
    tuned = module.module.vta_seconds()
    network, default_tiles = module.module.network, DeviceKernels()
    for network.run_kernel in (run_kernel, default_tiles):
        np.testing.assert_array_equal(network.run({"data": image}), got)
    seconds = sum(launch.timing().ms for _, launch in default_tiles.launches) / 1e3
    assert tuned > 1.01 * seconds, "the record is slower than the default tiles"


def test_files_that_are_no_library(tmp_path: Path) -> None:
    path = tmp_path / "lib.tar"
    build(packed()).export_library(path)
    whole = path.read_bytes()
    for wrong in (b"", b"text", whole[: len(whole) // 2], whole[:300], whole.replace(b'"nodes"', b'"other"')):
        path.write_bytes(wrong)
        with pytest.raises(GraphError, match=r"^library .*lib\.tar: (no network can be read|node 0 is no node)"):
            load_library(path)
    path.write_bytes(whole.replace(b'"nn.max_pool2d"', b'"nn.mix_pool2d"'))
    with pytest.raises(GraphError, match=r"node \d+: operator: the name is unknown, got name='nn.mix_pool2d'"):
        load_library(path)
    with pytest.raises(GraphError, match="no network can be read from it"):
        load_library(tmp_path / "none.tar")
    with pytest.raises(GraphError, match="it cannot be written"):
        build(packed()).export_library(tmp_path / "none" / "lib.tar")


# ------------------------------------------------------------------------------------------------------- one sentence


def test_environment(tmp_path: Path) -> None:
    env = vta.get_env()
    assert (env.BATCH, env.BLOCK_IN, env.BLOCK_OUT) == (1, 16, 16)
    assert (env.INP_WIDTH, env.WGT_WIDTH, env.ACC_WIDTH, env.OUT_WIDTH) == (8, 8, 32, 8)
    assert (env.TARGET, env.BITSTREAM, env.MODEL) == (
        "sim", "1x16_i8w8a32_15_15_18_17", "sim_1x16_i8w8a32_15_15_18_17"
    )  # fmt: skip
    assert str(env.target) == "vta -device=vta -keys=vta,cpu -model=sim_1x16_i8w8a32_15_15_18_17"
    assert env.target.device_name == "vta" and env.target_vta_cpu.device_name == "arm_cpu"
    path = tmp_path / "vta_config.json"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"vta_config\.json: no configuration can be read from it"):
        vta.get_env(path)


def test_boards_and_wrong_files() -> None:
    port = free_port()
    gone = rf"no tracker answers at 127\.0\.0\.1:{port} \("
    with pytest.raises(BackendError, match=gone):
        autotvm.RPCRunner("pynq", "0.0.0.0", port)
    assert autotvm.RPCRunner("sim", number=5, timeout=60, check_correctness=True).number == 5
    with pytest.raises(BackendError, match=gone):
        autotvm.measure.request_remote("pynq", "0.0.0.0", port, timeout=10000)
    with pytest.raises(BackendError, match="a LocalSession or what request_remote gives is needed"):
        vta.reconfig_runtime(DeviceId("cpu"))  # type: ignore[arg-type]
    remote = rpc.LocalSession()
    with pytest.raises(GraphError, match="upload: a file is needed"):
        remote.upload("/nowhere/graphlib.tar")
    with pytest.raises(GraphError, match="a file name without folders is needed"):
        remote.load_module("../graphlib.tar")
    with pytest.raises(GraphError, match="no network can be read from it"):
        remote.load_module("graphlib.tar")
    with pytest.raises(GraphError, match="is made from lib"):
        graph_runtime.GraphModule(DeviceId("cpu"))  # type: ignore[arg-type]


def test_wrong_layouts_and_several_outputs() -> None:
    task = conv_task()
    args = [*task.args[:5], "NCHW4n16c", "int32"]
    with pytest.raises(Exception, match="the layout of this data is NCHW1n16c, got layout='NCHW4n16c'"):
        autotvm.task.create("conv2d_packed.vta", args=args, target="vta")
    x = te.placeholder((1, 1, 4, 4, 1, 16), dtype="int32")
    with pytest.raises(CompileError, match="one output is needed"):
        vta.top.schedule_conv2d_packed([requantized(x)] * 2)


def test_too_large_tiles_say_which_memory() -> None:
    """The whole of C2 at once."""
    data, kernel = (
        te.placeholder((1, 4, 56, 56, 1, 16), dtype="int8"),
        te.placeholder((4, 4, 3, 3, 16, 16), dtype="int8"),
    )
    args = (data, kernel, (1, 1), (1, 1), (1, 1), "NCHW1n16c", "int32")
    task = autotvm.task.create("conv2d_packed.vta", args=args, target="vta")
    refused = Trials().build(task, task.config_space.get(len(task.config_space) - 1))
    assert isinstance(refused, Refusal)
    law = r"conv2d_packed: the tile in INP must fit its 2048 elements, got 13456 elements times 4 virtual threads"
    assert re.fullmatch(law, refused.reason), refused.reason


def test_a_truncated_log_costs_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pairs = records()
    path = tmp_path / "vta.log"
    record.save(path, *[[x] for x in pairs[0]])
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:-40])
    with caplog.at_level("WARNING", "autotvm"), autotvm.tophub.context("vta", extra_files=[path]):
        lib = build(packed())
    assert list(lib.configs) == [pairs[0][0].workload]
    assert re.search(r"vta\.log: 1 unreadable line was skipped; line 2: ", caplog.text)
