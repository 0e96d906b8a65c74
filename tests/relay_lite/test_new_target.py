"""A target added by hand, as docs/replacing_a_part.md says: it is searched, measured, recorded, and runs networks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
import relay_lite as relay
import te_lite as te
from ansor.core.device.backend import backend
from ansor.core.target import registry
from ansor.core.target.hardware import HardwareParams
from ansor.measure import list_devices
from ansor.measure.check import poison
from relay_lite import reference
from relay_lite.ir.control import UNBOUNDED
from relay_lite.ir.errors import GraphError
from relay_lite.ir.loops import branch, loop
from relay_lite.ir.make import call
from relay_lite.ir.nodes import Expr, Function, Var, const
from relay_lite.ir.types import TensorType
from relay_lite.runtime.graph_executor import GraphModule
from te_lite.meaning.reference import evaluate, random_inputs
from tests.relay_lite.test_branches import either
from tests.workloads import WORKLOADS

FILE = Path(__file__).parent.parent.parent / "examples" / "seams" / "custom_backend.py"
MODULE = "examples.seams.custom_backend"


@pytest.fixture(autouse=True)
def toy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    assert ansor.register_backend("toy", MODULE) is None
    yield


def small_network() -> relay.Function:
    """Input [1, 2, 5, 4]; outputs [1, 2] and [1, 20]: a reshape of one is no step, and one kernel runs twice."""
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=(1, 2, 5, 4))
    value: Any = x
    for _ in range(2):
        weight = relay.const(rng.normal(size=(2, 2, 3, 3)).astype("float32"))
        value = relay.nn.relu(relay.nn.conv2d(value, weight, padding=(1, 1), channels=2))
    return relay.Function([x], relay.Tuple([relay.mean(value, axis=(2, 3)), relay.reshape(value, newshape=(2, 20))]))


def test_it_is_short() -> None:
    assert len(FILE.read_text().splitlines()) < 100


@pytest.mark.long
@pytest.mark.parametrize("name", ["matmul_relu", "argmax"])
def test_its_programs_are_searched_and_right(name: str, tmp_path: Path) -> None:
    dag = te.ComputeDAG(WORKLOADS[name]())
    task = ansor.SearchTask(compute_dag=dag, target="toy")
    log = tmp_path / "log"
    options = ansor.TuningOptions(
        4, verbose=0, measure_callbacks=[ansor.RecordToFile(log)], builder=ansor.LocalBuilder(60, 1),
        runner=ansor.LocalRunner(60, number=1, min_repeat_ms=0),
    )  # fmt: skip
    task.tune(options, ansor.SketchPolicy(task, ansor.RandomModel(0), seed=0, verbose=0))
    records = list(ansor.load_records(log))
    assert len(records) == 4 and all(res.ok for _, res in records), [res for _, res in records]
    assert {inp.task.target.kind.name for inp, _ in records} == {"toy"}
    module = task.build_best(log)
    inputs = random_inputs(dag.tensors, np.random.default_rng(1))
    wanted = evaluate(dag.tensors, inputs)
    arrays = [inputs[t].copy() if t in inputs else poison(t.shape, t.dtype) for t in dag.tensors]
    module(*arrays)
    for t, array in zip(dag.tensors, arrays, strict=True):
        np.testing.assert_allclose(array, wanted[t], rtol=1e-4, atol=1e-5)
    assert module.time(*arrays, number=1).mean > 0 and module.source.startswith("func ")
    with pytest.raises(ansor.TaskError, match="arrays are needed"):
        module(*arrays[1:])


def test_one_way_of_a_branch_runs() -> None:
    """The kernel of the other one is last in the plan, and would leave its result."""
    lib = relay.build(either(), target="toy")
    assert [bool(s.where) for s in lib.plan.steps] == [not s.unless for s in lib.plan.steps] and len(lib.plan.steps) > 1
    module, x = GraphModule(lib["default"](ansor.device("toy"))), np.ones((3, 4), "float32")
    for flag in (True, False):
        module.run(c=np.array(flag), x=x)
        want = reference.run(either(), [np.array(flag), x])
        np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)
        assert np.array_equal(want, x) != flag


def test_a_loop_without_a_bound_runs() -> None:
    n, x = Var("n", TensorType((), "int64")), Var("x", TensorType((3, 4), "float32"))
    ends = [call("less", const(0, "int64"), n), const(0, "int64"), x]

    def step(_: Sequence[Expr], held: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        on, trip, old = held
        later = call("add", trip, const(1, "int64"))
        made = call("tanh", call("nn.dense", old, const(np.eye(4) * 2, "float32")))
        return branch(on, [call("less", later, n), later, made], held, {*held, n}), []

    last, _ = loop(step, [], ends, UNBOUNDED, unbounded=True)
    module = GraphModule(relay.build(Function((n, x), last[2]), target="toy")["default"](ansor.device("toy")))
    for trips in (0, 1, 2, 5):
        value = want = np.linspace(-1, 1, 12, dtype="float32").reshape(3, 4)
        for _ in range(trips):
            want = np.tanh(want.astype("float64") * 2)
        module.run(n=np.array(trips), x=value)
        np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)


def test_networks_run_kernel_by_kernel(tmp_path: Path) -> None:
    """As built, and as read from a folder; a parameter that is exchanged counts, zero copy too."""
    function, rng = small_network(), np.random.default_rng(0)
    lib = relay.build(function, target="toy")
    lib.export(tmp_path / "net")
    for found in (lib, relay.load(tmp_path / "net")):
        module = GraphModule(found["default"](ansor.device("toy")))
        for _ in range(2):
            x = rng.normal(size=(1, 2, 5, 4)).astype("float32")
            module.run(x=x)
            for k, want in enumerate(reference.run(function, [x])):
                np.testing.assert_allclose(module.get_output(k).numpy(), want, rtol=1e-4, atol=1e-5)
        assert module.benchmark(number=1, repeat=2).mean > 0
    out = ansor.nd.empty((1, 2))
    module.set_output_zero_copy(0, out)
    module.run(x=x)
    np.testing.assert_allclose(out.numpy(), reference.run(function, [x])[0], rtol=1e-4, atol=1e-5)
    assert str(module.get_output(1).device) == "toy(0)"


def test_a_network_of_another_machine_is_refused() -> None:
    lib = relay.build(small_network(), target="toy")
    lib.machine["machine"] = "abacus"  # type: ignore[index]
    with pytest.raises(GraphError, match=r"was compiled for .*abacus.*; build it here"):
        lib["default"]()


def test_what_a_kind_is_like() -> None:
    """The family of a new kind decides rules, hardware defaults and the analytical machine."""
    ansor.register_backend("warp", MODULE, like="cuda")
    assert ansor.Target("warp -model=T4").is_gpu and not ansor.Target("toy").is_gpu
    assert HardwareParams.for_target("warp").to_json() == HardwareParams.for_target("cuda").to_json()
    assert HardwareParams.for_target("toy").to_json() == HardwareParams.for_target("c").to_json()
    assert ansor.register_backend("warp", "tests.nowhere") == MODULE and ansor.Target("warp").is_gpu
    with pytest.raises(ansor.BackendError, match="like is one of c, cuda, got like='vta'"):
        ansor.register_backend("other", MODULE, like="vta")
    with pytest.raises(ansor.BackendError, match="a target kind is one word"):
        ansor.register_backend("two words", MODULE)
    with pytest.raises(ansor.TaskError, match="known targets are c, cuda, vta, toy, warp, cpu, llvm"):
        ansor.Target("other")


def test_defaults() -> None:
    """What the toy does not say."""
    found = backend("toy")
    found.check("toy")
    assert [d.label.split(" (")[0] for d in list_devices("toy")] == ["toy 0"] and found.report() == []
    assert found.shares_host and found.host_files == () and found.templates is None and found.networks is None
    with pytest.raises(ansor.TaskError, match="target 'toy -x': its devices do not tell their numbers"):
        HardwareParams.from_device("toy -x")
    with pytest.raises(ansor.MeasureError, match="its networks cannot be run from a file"):
        found.load_network("file", 0)


def test_an_object_that_is_no_backend_is_refused() -> None:
    ansor.register_backend("toy", "tests.relay_lite.test_new_target")
    with pytest.raises(ansor.BackendError, match=r"derived from ansor\.core\.device\.backend\.Backend, got 'object'"):
        backend("toy")


BACKEND = object()
