"""Networks on a GPU: results, CUDA graphs, asynchronous runs, zero copy, timing, files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ansor
from relay_lite import reference
from relay_lite.compiler.build import build
from relay_lite.ir.errors import GraphError
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Expr, Function, Tuple
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.runtime.library import NetworkLibrary, load
from tests.relay_lite.pass_graphs import Layers, random_network, relu

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)

from codegen_cuda.driver.module import open_device  # noqa: E402
from codegen_cuda.networks.cuda_graph import LaunchGraph  # noqa: E402
from codegen_cuda.networks.launch_ways import WAYS  # noqa: E402
from tests.nonempty import nonempty  # noqa: E402

Array = np.ndarray[Any, np.dtype[Any]]


def network() -> Function:
    """Inputs x [2, 9, 7, 8] float32 and k [2, 4] int32; outputs [2, 4] and [2, 9, 7, 8]."""
    make = Layers(np.random.default_rng(4), "NHWC", "float32")
    x, k = var("x", (2, 9, 7, 8)), var("k", (2, 4), "int32")
    features: Expr = relu(make.bias(make.conv(x, 8)))
    for _ in range(4):
        features = relu(call("add", make.bias(make.conv(features, 8)), features))
    scores = call("add", make.tail(features, 4), call("cast", k, dtype="float32"))
    return Function((x, k), Tuple((call("nn.softmax", scores), features)))


NETWORK = network()


def drawn(seed: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    return {"x": rng.uniform(-1, 1, (2, 9, 7, 8)).astype("float32"), "k": rng.integers(0, 9, (2, 4)).astype("int32")}


def check(module: GraphModule, inputs: dict[str, Array]) -> None:
    for k, want in nonempty(enumerate(reference.run(NETWORK, inputs))):
        got = module.get_output(k).numpy()
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * float(np.abs(want).max()))


@pytest.fixture(scope="module")
def library() -> NetworkLibrary:
    return build(NETWORK, target="cuda")


@pytest.fixture
def module(library: NetworkLibrary) -> Iterator[GraphModule]:
    made = GraphModule(library["default"](ansor.device("cuda")))
    poison(made)
    yield made
    made._executor.synchronize()


def poison(module: GraphModule) -> None:
    """The arena and the outputs are NaN before a run."""
    executor: Any = module._executor
    cuda = open_device().cuda
    if module.plan.arena_bytes:
        cuda.memset_d8(executor._arena_address(), 255, module.plan.arena_bytes)
    for place in module.plan.outputs:
        if module.plan.storages[place.storage].kind == "output":
            cuda.memset_d8(executor._address(place.storage), 255, place.nbytes)


def test_runs_follow_their_inputs(module: GraphModule) -> None:
    for seed in range(4):
        module.run(**drawn(seed))
        check(module, drawn(seed))


def test_runs_are_queued_in_order(module: GraphModule) -> None:
    """Many runs without waiting, each with inputs of its own: the last ones count."""
    for seed in range(20):
        module.run(**drawn(seed))
    check(module, drawn(19))


def test_every_way_gives_the_same_bits(module: GraphModule) -> None:
    """However kernels follow each other, and whether they fetch weights ahead."""
    executor: Any = module._executor
    module.run(**drawn(3))
    right = [module.get_output(k).numpy() for k in range(2)]
    if not all(program.ahead for program in executor._programs.values()):
        pytest.skip("the kernels of this device follow each other in one way")
    for way in WAYS:
        poison(module)
        executor.recorded(way).launch()
        for k, want in enumerate(right):
            assert np.array_equal(module.get_output(k).numpy(), want), way


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
@pytest.mark.parametrize("seed", range(4))
def test_random_networks(seed: int, layout: str) -> None:
    rng = np.random.default_rng([11, seed])
    function = random_network(rng, 12, layout)
    module = GraphModule(build(function, target="cuda")["default"](ansor.gpu()))
    poison(module)
    inputs = {v.name: rng.uniform(-1, 1, v.shape) for v in function.params}
    module.run(**inputs)
    want = reference.run(function, inputs)
    for k, expected in nonempty(enumerate(want if isinstance(want, tuple | list) else [want])):
        largest = max(float(np.abs(expected).max()), 1e-3)
        np.testing.assert_allclose(module.get_output(k).numpy(), expected, rtol=0, atol=1e-9 * largest)


def test_zero_copy_records_the_graph_again(module: GraphModule) -> None:
    inputs = drawn(5)
    module.run(**inputs)
    before = module._executor.graph  # type: ignore[attr-defined]
    mine, out = ansor.nd.array(drawn(6)["x"], ansor.gpu()), ansor.nd.empty((2, 9, 7, 8), device=ansor.gpu())
    module.set_input_zero_copy("x", mine)
    module.set_output_zero_copy(1, out)
    module.run()
    assert module._executor.graph is not before  # type: ignore[attr-defined]
    check(module, {"x": drawn(6)["x"], "k": inputs["k"]})
    np.testing.assert_array_equal(out.numpy(), module.get_output(1).numpy())
    with pytest.raises(GraphError, match="an array on the GPU is needed"):
        module.set_input_zero_copy("x", inputs["x"])


def test_arrays_of_the_device(module: GraphModule) -> None:
    inputs = drawn(7)
    module.run(**{name: ansor.nd.array(value, ansor.gpu()) for name, value in inputs.items()})
    check(module, inputs)
    out = module.get_output(1, ansor.nd.empty((2, 9, 7, 8), device=ansor.gpu()))
    np.testing.assert_array_equal(out.numpy(), module.get_output(1).numpy())


def test_figures(module: GraphModule) -> None:
    inputs = drawn(8)
    result = module.benchmark(ansor.gpu(), repeat=3, min_repeat_ms=20, **inputs)
    assert len(result.results) == 3 and result.min > 0
    check(module, inputs)
    assert module.benchmark(repeat=2, number=2, end_to_end=True, **inputs).min > 0
    kernels = module.profile(number=5)
    assert [k for k, _ in kernels] == [s.kernel for s in module.plan.steps] and all(s > 0 for _, s in kernels)
    print(result, *[f"{name} {seconds * 1e6:.2f} us" for name, seconds in kernels], sep="\n")


def test_export_and_load(library: NetworkLibrary, tmp_path: Path) -> None:
    library.export(tmp_path / "network")
    module = GraphModule(load(tmp_path / "network")["default"](ansor.gpu()))
    module.run(**drawn(9))
    check(module, drawn(9))


def test_a_graph_of_copies() -> None:
    """What is recorded runs at each launch and not before."""
    device = open_device()
    source, target = device.put(np.arange(5.0)), device.put(np.zeros(5))
    graph = LaunchGraph(
        device.cuda, lambda stream: device.cuda.memcpy_dtod_async(target.pointer, source.pointer, 40, stream)
    )
    np.testing.assert_array_equal(device.get(target), np.zeros(5))
    for k in range(3):
        device.write(source, np.arange(5.0) * k)
        graph.launch()
        np.testing.assert_array_equal(device.get(target), np.arange(5.0) * k)


def test_a_recording_that_fails_leaves_the_device_usable() -> None:
    device = open_device()

    def fail(stream: Any) -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        LaunchGraph(device.cuda, fail)
    np.testing.assert_array_equal(device.get(device.put(np.arange(3))), np.arange(3))
