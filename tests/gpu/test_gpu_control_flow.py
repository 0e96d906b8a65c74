"""Control flow on a GPU: branches and loops of a bound in one recording, loops without one in several."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.gpu
pytest.importorskip("pycuda.driver", exc_type=ImportError)
pytest.importorskip("onnx")

import relay_lite as relay  # noqa: E402
from codegen_cuda.driver.module import open_device  # noqa: E402
from codegen_cuda.networks.cuda_graph import NON_BLOCKING  # noqa: E402
from codegen_cuda.networks.launch_ways import WAYS  # noqa: E402
from codegen_cuda.networks.network import MOST_GRAPHS  # noqa: E402
from relay_lite.frontend import from_onnx  # noqa: E402
from tests.nonempty import nonempty  # noqa: E402
from tests.reports import test_control_flow, test_unbounded_loops  # noqa: E402
from tests.reports.test_control_flow import Case, model_of  # noqa: E402

CASES: dict[str, Case] = test_control_flow.CASES | test_unbounded_loops.CASES


@pytest.mark.parametrize("name", CASES)
def test_control_flow(name: str) -> None:
    case = CASES[name]
    graph, _ = from_onnx(model_of(case.text))
    network = relay.graph_executor.GraphModule(relay.build(graph, "cuda")["default"]())
    known = [v.name for v in graph["main"].params]
    names = [i.name for i in model_of(case.text).graph.input]
    for arrays in nonempty(case.inputs(np.random.default_rng(0))):
        given = {n: a for n, a in zip(names, arrays, strict=True) if n in known}
        for _ in range(2):
            network.run(**given)
            for k, want in nonempty(enumerate(case.want(*arrays))):
                got = network.get_output(k).numpy()
                np.testing.assert_allclose(got, want, rtol=2e-5, atol=1e-5, err_msg=f"{name}, output {k}")


def test_a_loop_without_a_bound_on_other_memory_and_another_stream() -> None:
    """Recordings are exchanged part by part; the host waits for the stream of the run."""
    case, device = CASES["an input says how many trips"], open_device()
    graph, _ = from_onnx(model_of(case.text))
    library = relay.build(graph, "cuda")
    module = library["default"]()
    executor, stream = module.executor, device.cuda.Stream(NON_BLOCKING)
    places = {place.name: place.storage for place in library.plan.inputs}
    (out,) = library.plan.outputs
    for way in WAYS:
        executor.way = way  # a cached property: what the first run would choose
        executor._graphs.clear()  # type: ignore[attr-defined]
        for k, arrays in nonempty(enumerate([*case.inputs(np.random.default_rng(1))][: MOST_GRAPHS + 3])):
            held = [device.put(np.asarray(a)) for a in arrays]
            result = device.empty(out.shape, out.dtype)
            for (_, storage), handle in zip(places.items(), held, strict=True):
                executor.point(storage, handle.pointer)
            executor.point(out.storage, result.pointer)
            executor.run(int(stream.handle))
            stream.synchronize()
            np.testing.assert_allclose(device.get(result), case.want(*arrays)[0], rtol=2e-5, atol=1e-5, err_msg=str(k))


def test_kernels_of_a_loop_without_a_bound_are_timed() -> None:
    case = CASES["a loop without an end in one without an end"]
    graph, _ = from_onnx(model_of(case.text))
    network = relay.graph_executor.GraphModule(relay.build(graph, "cuda")["default"]())
    network.run(m=np.array(3), x=np.array([1, 2, 3], "float32"))
    times = network.profile(2)
    assert len(times) > 4 and all(seconds > 0 for _, seconds in times)
    assert network.benchmark(number=2, repeat=2).mean > 0
