"""One computation by all who can run it: reference, interpreter, compiled C (serial and vectors), emulated CUDA."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

import ansor
import codegen_c
import relay_lite as relay
import te_lite as te
from ansor.sketch.plain import plain_state
from codegen_cuda import emit
from codegen_cuda.emulation.emulator import run_program
from relay_lite.frontend import from_onnx
from relay_lite.ir.reference import run as run_graph
from relay_lite.op.lower_group import lower_group
from te_lite.computation.tensor import Tensor
from te_lite.expr.simplify import Simplifier
from te_lite.loops.stmt import LoweredFunc
from te_lite.lowering.lower import lower
from te_lite.meaning import interp
from te_lite.meaning.interp_expr import evaluate as value
from te_lite.meaning.reference import evaluate
from te_lite.schedule.schedule import Schedule

Array = np.ndarray[Any, np.dtype[Any]]
Run = Callable[[LoweredFunc, list[Array]], object]
SPOILED = 77


def _compiled(func: LoweredFunc, args: list[Array]) -> object:
    return codegen_c.build(func)(*args)


def _emulated(func: LoweredFunc, args: list[Array]) -> object:
    return run_program(emit(func), args)


def _plain(out: Tensor) -> Schedule:
    return te.create_schedule(out.op)


def _vectors(out: Tensor) -> Schedule:
    s = te.create_schedule(out.op)
    s[out].vectorize(s[out].split(out.op.axis[-1], factor=8)[1])
    return s


def _threads(out: Tensor) -> Schedule:
    s = te.create_schedule(out.op)
    block, thread = s[out].split(out.op.axis[-1], factor=8)
    s[out].bind(block, te.thread_axis("blockIdx.x"))
    s[out].bind(thread, te.thread_axis("threadIdx.x"))
    return s


WAYS: dict[str, tuple[Callable[[Tensor], Schedule], Run]] = {
    "interpreter": (_plain, interp.run),
    "C": (_plain, _compiled),
    "vectors of C": (_vectors, _compiled),
    "CUDA": (_threads, _emulated),
}


def of_vectors(make: Callable[..., Any], arrays: Sequence[Array], out: str = "") -> Iterator[tuple[str, Array]]:
    """`make` of the elements of vectors of one length (a multiple of 8), in every way; and of the same as constants."""
    dtypes = [str(a.dtype) for a in arrays]
    for who, (schedule, run) in WAYS.items():
        inputs = [te.placeholder(a.shape, d, f"x{k}") for k, (a, d) in enumerate(zip(arrays, dtypes, strict=True))]
        made = te.compute(arrays[0].shape, lambda i, of=inputs: make(*[x[i] for x in of]), "made")
        result = np.full(made.shape, SPOILED, made.dtype)
        run(lower(schedule(made), [*inputs, made]), [*[a.copy() for a in arrays], result])
        yield who, result
    yield "reference", evaluate([*inputs, made], dict(zip(inputs, arrays, strict=True)))[made]
    folded = [
        make(*[te.const(x.item(), d) for x, d in zip(row, dtypes, strict=True)]) for row in zip(*arrays, strict=True)
    ]
    yield "folding", np.array([value(Simplifier({}).simplify(e), {}) for e in folded], made.dtype)


def of_graph(function: relay.Function, arrays: Sequence[Array]) -> Iterator[tuple[str, list[Array]]]:
    """The results of a graph: its meaning in NumPy, that of its tensors, plain programs, and the network compiled."""
    yield "graph", [np.asarray(x) for x in _list(run_graph(function, list(arrays)))]
    for target in ("c", "cuda"):
        lowered = lower_group(function, target)
        inputs, outs = lowered.tensors[: len(arrays)], lowered.tensors[len(arrays) :]
        if target == "c":
            values = evaluate(lowered.tensors, dict(zip(inputs, arrays, strict=True)))
            yield "reference", [values[t] for t in outs]
        task = ansor.SearchTask(compute_dag=te.ComputeDAG(lowered.tensors), target=target)
        func = lower(plain_state(task), lowered.tensors)
        ways: dict[str, Run] = {"interpreter": interp.run, "C": _compiled} if target == "c" else {"CUDA": _emulated}
        for who, run in ways.items():
            results = [np.full(t.shape, SPOILED, t.dtype) for t in outs]
            run(func, [*[a.copy() for a in arrays], *results])
            yield who, results
    yield "network", compiled(relay.IRModule({"main": function}), arrays)


def of_onnx(model: onnx.ModelProto, arrays: Sequence[Array]) -> Iterator[tuple[str, list[Array]]]:
    """The results of a model: its graph in NumPy, compiled, and with its inputs as constants, which fold on import."""
    module = from_onnx(model)[0]
    yield "graph", [np.asarray(x) for x in _list(run_graph(module["main"], list(arrays)))]
    yield "network", compiled(module, arrays)
    known = onnx.ModelProto()
    known.CopyFrom(model)
    for value_info, array in zip(model.graph.input, arrays, strict=True):
        known.graph.initializer.append(numpy_helper.from_array(array, value_info.name))
    del known.graph.input[:]
    yield "constants", [np.asarray(x) for x in _list(run_graph(from_onnx(known)[0]["main"], []))]


def node_model(
    op: str, arrays: Sequence[Array], outputs: int = 1, opset: int = 18, domain: tuple[str, int] = ("", 0), **attrs: Any
) -> onnx.ModelProto:
    """A model of one node, whose inputs are like `arrays`; of another domain, of a version of it."""
    names = [f"x{k}" for k in range(len(arrays))]
    kinds = [helper.np_dtype_to_tensor_dtype(a.dtype) for a in arrays]
    inputs = [helper.make_tensor_value_info(n, t, a.shape) for n, t, a in zip(names, kinds, arrays, strict=True)]
    outs = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(op, names, outs, domain=domain[0], **attrs)
    graph = helper.make_graph([node], "graph", inputs, [onnx.ValueInfoProto(name=y) for y in outs])
    opsets = [helper.make_opsetid("", opset), *([helper.make_opsetid(*domain)] if domain[0] else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def compiled(module: relay.IRModule, arrays: Sequence[Array]) -> list[Array]:
    """The results of a network that is built with default programs for the CPU."""
    lib = relay.build(module, "c")
    runner = relay.graph_executor.GraphModule(lib["default"](ansor.device("c")))
    names = [v.name for v in module["main"].params]
    runner.run(**dict(zip(names, arrays, strict=True)))
    return [runner.get_output(k).numpy() for k in range(runner.get_num_outputs())]


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple | list) else [value]


def same_bits(got: Array, want: Array, what: str) -> None:
    """Equal, zeros with their signs; NaN where NaN is wanted."""
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype, f"{what}: {got.dtype}, wanted {want.dtype}"
    if got.dtype.kind == "V":  # a stored dtype, whose NaN NumPy does not know
        got, want = got.astype("float32"), want.astype("float32")
    np.testing.assert_array_equal(got, want, what)
    zeros = want == 0
    np.testing.assert_array_equal(np.signbit(got[zeros]), np.signbit(want[zeros]), f"{what}: signs of zeros")
