"""Networks with open extents when they run: bounds, plans and memory of the sizes that come, and what is refused."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

import codegen_c.compile
import relay_lite as relay
import te_lite as te
from relay_lite import GraphError, nn
from relay_lite.ir.at_sizes import at_sizes
from relay_lite.ir.reference import run as reference
from relay_lite.runtime.open_executor import MOST_KEPT
from tests.nonempty import nonempty

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
N, M = te.size_var("n", 2, 40), te.size_var("m", 1, 8)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype("float32")


def rows() -> relay.Function:
    """A product of the sum of two inputs of n rows, and the sums of halves of its rows."""
    x, y = relay.var("x", shape=(N, 8)), relay.var("y", shape=(N, 8))
    product = nn.relu(nn.dense(relay.add(x, y), relay.const(numbers(6, 8))))
    return relay.Function((x, y), relay.Tuple([product, relay.sum(relay.reshape(product, (N * 2, 3)), 1)]))


@pytest.fixture(scope="module")
def library() -> Any:
    return relay.build(rows(), "c")


def test_every_size_runs_without_a_compiler(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    net = relay.graph_executor.GraphModule(library["default"]())

    def refused(*args: Any, **named: Any) -> None:
        raise AssertionError("a compiler was started")

    monkeypatch.setattr(codegen_c.compile, "run_compiler", refused)
    for n in nonempty(range(2, 41)):
        arrays = [numbers(n, 8), np.ascontiguousarray(numbers(8, n).T)]
        net.run(x=arrays[0], y=arrays[1])
        for k, want in enumerate(nonempty(reference(at_sizes(rows(), {N: n}), arrays))):
            np.testing.assert_allclose(net.get_output(k).numpy(), want, rtol=1e-4, atol=1e-5)
    assert net.get_num_outputs() == net.get_num_inputs() == 2
    assert net.get_input_info() == ({"x": (N, 8), "y": (N, 8)}, {"x": "float32", "y": "float32"})


def test_memory_is_that_of_the_sizes_and_kept_for_a_few(library: Any) -> None:
    small, large = library.at({N: 2}).plan, library.at({N: 40}).plan
    assert [t.shape for t in small.outputs] == [(2, 6), (4,)]
    assert [t.shape for t in large.outputs] == [(40, 6), (80,)] == [t.shape for t in library.plan.outputs]
    assert small.arena_bytes <= large.arena_bytes
    device = library["default"]()
    first = device.at({N: 2})
    assert device.at({N: 2}) is first
    for n in range(3, 3 + MOST_KEPT):
        device.at({N: n})
    assert len(device.kept) == MOST_KEPT
    assert device.at({N: 2}) is not first
    assert first.library.aligned_value("p0") is device.at({N: 2}).library.aligned_value("p0")


def test_sizes_out_of_bounds_are_refused_in_one_sentence(library: Any) -> None:
    net = relay.graph_executor.GraphModule(library["default"]())
    for n in (1, 41):
        law = rf"^input x\[n, 8\]: n must be 2 to 40, the same in all inputs, got {n}$"
        with pytest.raises(GraphError, match=law):
            net.run(x=numbers(n, 8), y=numbers(n, 8))
    with pytest.raises(GraphError, match=r"^input y\[n, 8\]: n must be 2 to 40, the same in all inputs, got 4$"):
        net.run(x=numbers(3, 8), y=numbers(4, 8))
    with pytest.raises(ValueError, match=r"^input x: its shape must be \(n, 8\), got \(3, 7\)$"):
        net.run(x=numbers(3, 7))
    net.run(x=numbers(5, 8), y=numbers(5, 8))
    assert net.get_output(0).shape == (5, 6)


def test_calls_in_the_wrong_order(library: Any) -> None:
    net = relay.graph_executor.GraphModule(library["default"]())
    with pytest.raises(GraphError, match="the network has not run, so its sizes are not known"):
        net.get_output(0)
    net.set_input("x", numbers(3, 8))
    with pytest.raises(GraphError, match="inputs must be set before the network runs; missing: y"):
        net.run()
    with pytest.raises(RuntimeError, match="Could not find 'z' in graph's inputs"):
        net.set_input("z", numbers(3, 8))
    with pytest.raises(GraphError, match="has its outputs itself, use get_output"):
        net.set_output_zero_copy(0, numbers(3, 6))
    with pytest.raises(GraphError, match="copies its inputs, use set_input"):
        net.set_input_zero_copy(0, numbers(3, 8))
    net.set_input(1, numbers(3, 8))
    assert net.benchmark(number=1, repeat=1).mean > 0
    assert [name for name, _ in net.profile(1)] == list(library.kernels)


def test_groups_of_channels_are_normed_between_views() -> None:
    x = relay.var("x", shape=(M, 6, 3, 4))
    function = relay.Function((x,), nn.group_norm(x, *[relay.const(numbers(6, k)[:, 0]) for k in (1, 2)], 2))
    net = relay.graph_executor.GraphModule(relay.build(function, "c")["default"]())
    for m in nonempty((1, 3, 8)):
        net.run(x=numbers(m, 6, 3, 4))
        want = reference(at_sizes(function, {M: m}), [numbers(m, 6, 3, 4)])
        np.testing.assert_allclose(net.get_output(0).numpy(), want, rtol=1e-3, atol=1e-4)


def test_large_scratch_of_large_ranges_is_proven() -> None:
    """Scores of up to 512 x 512: arrays of kernels are given by the caller, and nothing is tried out point by point."""
    n, m = te.size_var("n", 1, 16), te.size_var("m", 1, 512)
    q = relay.var("q", shape=(n, m, 8))
    scores = relay.multiply(nn.batch_matmul(q, q), relay.const(0.5))
    function = relay.Function((q,), nn.batch_matmul(nn.softmax(scores), q, transpose_b=False))
    net = relay.graph_executor.GraphModule(relay.build(function, "c")["default"]())
    for sizes in nonempty(((1, 1), (3, 37))):
        net.run(q=numbers(*sizes, 8))
        want = reference(at_sizes(function, {n: sizes[0], m: sizes[1]}), [numbers(*sizes, 8)])
        np.testing.assert_allclose(net.get_output(0).numpy(), want, rtol=1e-3, atol=1e-4)


def test_an_extent_that_is_computed_must_be_that() -> None:
    x, y = relay.var("x", shape=(M,)), relay.var("y", shape=(M * 2,))
    made = relay.build(relay.Function((x, y), relay.Tuple([nn.relu(x), relay.add(y, relay.const(1.0))])), "c")
    net = relay.graph_executor.GraphModule(made["default"]())
    net.run(x=numbers(3), y=numbers(6))
    np.testing.assert_allclose(net.get_output(1).numpy(), numbers(6) + 1)
    with pytest.raises(GraphError, match=r"^input y\[m_2\]: m_2 must be 6, got 5$"):
        net.run(x=numbers(3), y=numbers(5))


def test_what_is_not_built(library: Any, tmp_path: Any) -> None:
    with pytest.raises(GraphError, match=r"networks with open extents are compiled for target c, got target='cuda"):
        relay.build(rows(), "cuda -arch=sm_90")
    with pytest.raises(GraphError, match="one with open extents is not exported"):
        library.export(tmp_path / "net")
    free = relay.add(relay.var("x", shape=(M, 3)), relay.var("y", shape=(M, 3)))
    with pytest.raises(GraphError, match="%y: a variable must be a parameter of the function"):
        relay.build(relay.Function((free.args[0],), free), "c")
    hidden = relay.var("x", shape=(M * 2, 3))
    with pytest.raises(GraphError, match=r"build: an input must have each open size as an extent by itself, .*'m'"):
        relay.build(relay.Function((hidden,), nn.relu(hidden)), "c")
