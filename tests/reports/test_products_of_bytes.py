"""Products of quantised models (`smart-turn`, a T5 in int8): bytes are multiplied as bytes, and no bit is another.

The oracle is NumPy in int64, cut to 32 bits.
"""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import helper, numpy_helper

import ansor
import relay_lite as relay
import te_lite as te
from ansor.policy.default_schedule import default_state
from ansor_ext.cpu_kernels.byte_products import tile, whole_vectors
from relay_lite.frontend import from_onnx
from relay_lite.ir.reference import run
from relay_lite.runtime.graph_executor import GraphModule
from te_lite import topi

Array = np.ndarray[Any, np.dtype[Any]]
GCC = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
SHAPES = [(1, 1, 1), (1, 16, 3), (4, 8, 64), (7, 13, 100), (61, 5, 17), (2, 3, 5, 96, 20), (12, 96, 515)]


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Random bytes, one in four at an end of its dtype."""
    ends = np.iinfo(dtype)
    drawn = rng.integers(ends.min, ends.max + 1, shape)
    return np.where(rng.random(shape) < 0.25, rng.choice([ends.min, ends.max], shape), drawn).astype(dtype)


def model(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None, known_zero: bool) -> Any:
    """MatMulInteger of an input and a weight; the zero point of the input is a second input, or known."""
    kind = helper.np_dtype_to_tensor_dtype
    inputs = [helper.make_tensor_value_info("a", kind(a.dtype), a.shape)]
    known = [numpy_helper.from_array(b, "b")]
    known += [numpy_helper.from_array(b_zero, "bz")] if b_zero is not None else []
    if a_zero is not None and known_zero:
        known.append(numpy_helper.from_array(a_zero, "az"))
    elif a_zero is not None:
        inputs.append(helper.make_tensor_value_info("az", kind(a_zero.dtype), a_zero.shape))
    names = ["a", "b", "" if a_zero is None else "az", "" if b_zero is None else "bz"]
    node = helper.make_node("MatMulInteger", names, ["y"])
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", 6, None)], known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def case(seed: int, shape: tuple[int, ...]) -> tuple[Any, dict[str, Array], Array]:
    """A model whose weight fits signed bytes, its inputs, and its result."""
    rng = np.random.default_rng(seed)
    *lead, n, k = shape
    a_kind, b_kind = (str(rng.choice(["uint8", "int8"])) for _ in range(2))
    a, b = integers(rng, (*lead, k), a_kind), integers(rng, (k, n), b_kind)
    per_row = len(lead) == 1 and rng.random() < 0.3
    a_zero = integers(rng, (lead[0],) if per_row else (), a_kind) if rng.random() < 0.7 else None
    b_zero = np.array(128, b_kind) if b_kind == "uint8" else None
    known_zero = bool(rng.random() < 0.5)
    left = a.astype("int64") - (0 if a_zero is None else a_zero.astype("int64")[:, None] if per_row else int(a_zero))
    right = b.astype("int64") - (0 if b_zero is None else int(b_zero))
    want = (left @ right).astype("int32")
    feeds = {"a": a} | ({} if a_zero is None or known_zero else {"az": a_zero})
    return model(a, b, a_zero, b_zero, known_zero), feeds, want


@pytest.mark.one_in(9)
@GCC
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_integers_are_multiplied_as_bytes(seed: int, shape: tuple[int, ...]) -> None:
    made, feeds, want = case(1000 * seed + len(shape), shape)
    module, _ = from_onnx(made)
    np.testing.assert_array_equal(run(module, feeds), want)
    library = relay.build(module, "c")
    network = GraphModule(library["default"]())
    network.run(**feeds)
    np.testing.assert_array_equal(np.asarray(network.get_output(0)), want)
    sources = [kernel.source for kernel in library.kernels.values()]
    assert any("const uint8_t *restrict" in s and "const int8_t *restrict" in s for s in sources)


@GCC
def test_sums_that_leave_32_bits_wrap_as_words_do() -> None:
    """140,000 products of 255 - 0 and -128: -4.6e9."""
    a, b = np.full((2, 140_000), 255, "uint8"), np.full((140_000, 3), -128, "int8")
    module, _ = from_onnx(model(a, b, np.array(0, "uint8"), None, False))
    network = GraphModule(relay.build(module, "c")["default"]())
    network.run(a=a, az=np.array(3, "uint8"))
    want = np.full((2, 3), (255 - 3) * -128 * 140_000).astype("int32")
    np.testing.assert_array_equal(np.asarray(network.get_output(0)), want)


def sources_of(library: Any) -> list[str]:
    return [kernel.source for kernel in library.kernels.values()]


@GCC
@pytest.mark.parametrize("zero", [0, 3, 131, 255, None], ids=str)
def test_weights_without_a_sign_are_moved(zero: int | None) -> None:
    rng = np.random.default_rng(0)
    a, b = integers(rng, (5, 40), "uint8"), integers(rng, (40, 12), "uint8")
    known = np.array(zero, "uint8") if zero is not None else integers(rng, (12,), "uint8")
    module, _ = from_onnx(model(a, b, np.array(7, "uint8"), known, True))
    library = relay.build(module, "c")
    network = GraphModule(library["default"]())
    network.run(a=a)
    want = (a.astype("int64") - 7) @ (b.astype("int64") - known.astype("int64"))
    np.testing.assert_array_equal(np.asarray(network.get_output(0)), want)
    assert any("const int8_t *restrict" in s for s in sources_of(library))


@pytest.mark.one_in(3)
@GCC
@pytest.mark.parametrize("kinds", [("uint8", "uint8"), ("uint8", "int8"), ("int8", "uint8"), ("int8", "int8")], ids=str)
@pytest.mark.parametrize("zeros", [(None, None), (141, 130), (0, 130), (141, None), (17, 128)], ids=str)
@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_two_tensors_are_those_of_bytes(
    kinds: tuple[str, str], zeros: tuple[int | None, int | None], transposed: bool
) -> None:
    rng = np.random.default_rng(0)
    shapes = [(3, 13, 40), (3, 21, 40) if transposed else (3, 40, 21)]
    feeds = {name: integers(rng, shape, kind) for name, shape, kind in zip("ab", shapes, kinds, strict=True)}
    factors, wide = [], []
    for (name, x), zero in zip(feeds.items(), zeros, strict=True):
        words = relay.cast(relay.var(name, x.shape, str(x.dtype)), "int32")
        factors.append(words if zero is None else relay.subtract(words, relay.const(np.int32(zero))))
        wide.append(x.astype("int64") - (zero or 0))
    library = relay.build(relay.Function(
        relay.free_vars(product := relay.nn.batch_matmul(*factors, transpose_b=transposed)), product
    ), "c")  # fmt: skip
    network = GraphModule(library["default"]())
    network.run(**feeds)
    want = wide[0] @ (wide[1].transpose(0, 2, 1) if transposed else wide[1])
    np.testing.assert_array_equal(np.asarray(network.get_output(0)), want)
    assert any(
        "uint8_t *restrict" in s and "const int8_t *restrict" in s and "matmul" in s for s in sources_of(library)
    )


@pytest.mark.parametrize(
    ("columns", "j", "wide"), [(400, 5, 80), (1536, 4, 128), (8210, 5, 10), (13, 1, 13), (21, 7, 21)]
)
def test_what_follows_sums_has_vectors_of_its_own(columns: int, j: int, wide: int) -> None:
    assert whole_vectors(columns, j, 64) == wide


@pytest.mark.parametrize("rows", [1, 2, 7, 61, 400])
@pytest.mark.parametrize("columns", [1, 3, 13, 384, 513])
@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_tiles_divide_and_fit_the_registers(rows: int, columns: int, vector_bytes: int) -> None:
    i, j = tile(rows, columns, vector_bytes)
    assert rows % i == 0 and columns % j == 0 and i * j + min(i, j) < (32 if vector_bytes == 64 else 16)


def test_the_default_program_has_its_terms_innermost() -> None:
    a, b = te.placeholder((24, 64), "uint8", "a"), te.placeholder((32, 64), "int8", "b")
    product = topi.nn.dense(a, b, out_dtype="int32")
    out = te.compute((24, 32), lambda i, j: product[i, j].astype("float32") * 0.5, "out")
    task = ansor.SearchTask(compute_dag=te.ComputeDAG([a, b, out]), target="c")
    state = default_state(task)
    assert state is not None
    (stage,) = [s for s in state.stages if s.op.name == product.op.name]
    assert [it.name.split(".")[0] for it in stage.iters][-4:] == ["j", "k", "i", "j"]
    assert [it.annotation for it in stage.iters][-2:] == ["unroll", "unroll"]


@GCC
def test_rows_that_span_more_than_bytes_stay_words() -> None:
    """Beside one of them, the results of which are a tuple: those of bytes are no product."""
    rng = np.random.default_rng(0)
    data, weight = integers(rng, (5, 40), "uint8"), rng.integers(-255, 256, (12, 40)).astype("int32")
    weight[:, :2] = -255, 255
    x = relay.var("x", data.shape, "uint8")
    wide = relay.cast(x, "int32")
    body = relay.Tuple([relay.nn.dense(wide, relay.const(weight), out_dtype="int32"), relay.topk(wide, 3)[0]])
    library = relay.build(relay.Function([x], body), "c")
    network = GraphModule(library["default"]())
    network.run(x=data)
    np.testing.assert_array_equal(network.get_output(0).numpy(), data.astype("int64") @ weight.T.astype("int64"))
    np.testing.assert_array_equal(network.get_output(1).numpy(), -np.sort(-data.astype("int32"), axis=1)[:, :3])
    assert not any("const int8_t *restrict" in s for s in sources_of(library))
