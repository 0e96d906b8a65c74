"""One ONNX model that a package ships: imported, compiled untuned, compared and timed beside onnxruntime.

python -m benchmarks.shipped_models_one FILE OPTIONS_AS_JSON    # one JSON line; `benchmarks.shipped_models` starts it

Results are compared with onnxruntime's, relative to the largest value of an output.  The limit is that of the dtype
(`LIMITS`), or, where it is more, `MARGIN` times what onnxruntime itself differs by when a rounding error is put on
the inputs and when its optimizations are off: deep networks, steps of quantization and choices between nearly equal
values amplify that, and so nothing is learnt from a difference of this size.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime

import relay_lite as relay
from ansor.cli.compare import timed_in_turns
from benchmarks import report
from relay_lite.ir.module import main_function
from relay_lite.ir.reference import run
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.tuning.network import Network, load_network
from relay_lite.tuning.tune_network import largest_difference
from te_lite.errors import TeError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Feeds: TypeAlias = "dict[str, Array]"
LIMITS = {"float16": 5e-3, "float32": 1e-4, "float64": 1e-10}
MARGIN = 8.0
"""How many times onnxruntime's own unsteadiness a difference may be: it is a sample of few."""
FLOATS, INTEGERS = (-1.0, 1.0), (0, 1)
"""Between what inputs lie for which the table says nothing."""
COARSE, NOISE = 8, 0.3
ROUNDS, SLICE, LONG = 7, 0.1, 0.5
LENGTH = 400


KINDS = {"tensor(int64)": "int64", "tensor(int32)": "int32", "tensor(float)": "float32", "tensor(bool)": "bool"}
"""What onnxruntime calls the dtypes of inputs that are fixed."""
UNITS, DRAWS = 4.0, 3
"""How far the functions of a library may be off in the last place, and how often that is drawn."""


@dataclass(frozen=True)
class Asked:
    """What a table says of a model: shapes of inputs by name, and between what the values of some lie (inclusive).

    An input that can have one value only is fixed when the model is read.
    """

    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    ranges: Mapping[str, Sequence[float]] = field(default_factory=dict)
    threads: int = 2
    gigabytes: float = 8

    @property
    def fixed(self) -> dict[str, Array]:
        """The values of inputs that are fixed, in the shapes asked for."""
        same = {name: low for name, (low, high) in self.ranges.items() if low == high}
        return {name: np.full(self.shapes.get(name, ()), low) for name, low in same.items()}


@dataclass
class Found:
    """`outcome`: right, wrong, refused or crashed; times in seconds, of a call and of a start, as far as it came.

    `its_python` and `its_compilers` are the processor's seconds of the first compilation in this process and in its
    compilers; those of the workers that draw programs for a large network are not in them.
    """

    outcome: str = "right"
    reason: str = ""
    first_compilation: float | None = None
    its_python: float | None = None
    its_compilers: float | None = None
    session_start: float | None = None
    kernels: int | None = None
    error: float | None = None
    limit: float | None = None
    contrast: float | None = None
    ours: float | None = None
    onnxruntime: float | None = None
    ratio: float | None = None


def session_of(
    path: Path, asked: Asked, optimized: bool = True, weights: np.random.Generator | None = None
) -> onnxruntime.InferenceSession:
    """onnxruntime on the CPU, with its own optimizations or none; with `weights` these are rounded otherwise."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = asked.threads, 4
    if not optimized:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    model = _opened(path, asked)
    if weights is not None:
        model = _moved(model, weights)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _moved(model: str | bytes, rng: np.random.Generator) -> bytes:
    """A model with an error of `UNITS` in the last place at most on its float32 weights."""
    read = onnx.load(model) if isinstance(model, str) else onnx.load_from_string(model)
    for tensor in read.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            value = {"w": onnx.numpy_helper.to_array(tensor)}
            tensor.CopyFrom(onnx.numpy_helper.from_array(rounded_otherwise(value, rng, UNITS)["w"], tensor.name))
    data: bytes = read.SerializeToString()
    return data


def _opened(path: Path, asked: Asked) -> str | bytes:
    """The model, without the shapes it declares where others are asked for: onnxruntime would refuse them."""
    model = onnx.load(path, load_external_data=False)
    other = False
    for value in model.graph.input:
        for dim, n in zip(value.type.tensor_type.shape.dim, asked.shapes.get(value.name, ()), strict=False):
            if dim.dim_value not in (0, n):
                dim.dim_param, other = "any", True
    if not other:
        return str(path)
    for value in (*model.graph.output, *model.graph.value_info):
        value.type.tensor_type.ClearField("shape")
    opened: bytes = model.SerializeToString()
    return opened


def drawn(network: Network, asked: Asked, rng: np.random.Generator) -> Feeds:
    """Random inputs: floats in coarse patches with noise, integers and booleans evenly, between what the table says."""
    feeds = {}
    for variable in main_function(network.original).params:
        if variable.name in network.params:
            continue
        shape, dtype = variable.var_type.shape, variable.var_type.dtype
        is_float = dtype.startswith("float")
        low, high = asked.ranges.get(variable.name, FLOATS if is_float else INTEGERS)
        if is_float:
            unit = NOISE * rng.uniform(0, 1, shape) + (1 - NOISE) * _patches(shape, rng)
            feeds[variable.name] = np.asarray(low + (high - low) * unit, dtype)
        else:
            feeds[variable.name] = np.asarray(rng.integers(int(low), int(high) + 1, shape), dtype)
    return feeds


def _patches(shape: Sequence[int], rng: np.random.Generator) -> Array:
    """float64 between 0 and 1, in up to `COARSE` patches along an axis: networks tell mere noise hardly apart."""
    out: Array = np.asarray(rng.uniform(0, 1, [min(n, COARSE) for n in shape]))
    for axis, n in enumerate(shape):
        out = out.take(np.arange(n) * out.shape[axis] // max(1, n), axis)
    return out


def rounded_otherwise(feeds: Feeds, rng: np.random.Generator, units: float = 0.5) -> Feeds:
    """The inputs with an error of `units` in the last place at most on their floats."""
    return {
        name: np.asarray(x * (1 + rng.uniform(-units, units, x.shape) * np.finfo(x.dtype).eps), x.dtype)
        if x.dtype.kind == "f"
        else x
        for name, x in feeds.items()
    }


def difference(got: Sequence[Array], want: Sequence[Array]) -> float:
    """The largest of all outputs, relative to the largest finite value of each; infinite for other shapes or dtypes.

    Values that are not finite must be the same ones.
    """
    worst = 0.0
    for g, w in zip(got, want, strict=True):
        if (g.shape, g.dtype) != (w.shape, w.dtype):
            return float("inf")
        g, w = g.astype("float64"), w.astype("float64")
        odd = ~np.isfinite(w)
        if not np.array_equal(g[odd], w[odd], equal_nan=True):
            return float("inf")
        worst = max(worst, largest_difference(np.where(odd, 0, g), np.where(odd, 0, w)))
    return worst


def together(runs: Sequence[Sequence[Array]]) -> list[Array]:
    """Each output of all runs as one array: what is near 0 in one is held to what it is in the others."""
    return [np.stack(one) for one in zip(*runs, strict=True)]


def outputs(module: GraphModule, feeds: Feeds) -> list[Array]:
    """Copies of the results of a run."""
    module.run(**feeds)
    return [np.array(module.get_output(k).numpy()) for k in range(module.get_num_outputs())]


def judged(path: Path, asked: Asked, network: Network, module: GraphModule, found: Found) -> None:
    """Compare two random inputs and time both sides in turns; fills in `found`."""
    start = time.perf_counter()
    session = session_of(path, asked)
    found.session_start = time.perf_counter() - start
    rng = np.random.default_rng(0)
    feeds = [drawn(network, asked, rng) for _ in range(2)]
    given = {i.name for i in session.get_inputs()}
    fixed = {
        i.name: np.full(
            asked.shapes.get(i.name, [d if isinstance(d, int) else 1 for d in i.shape]),
            asked.fixed[i.name],
            KINDS[i.type],
        )
        for i in session.get_inputs()
        if i.name in asked.fixed
    }
    theirs = [{name: x for name, x in {**one, **fixed}.items() if name in given} for one in feeds]
    want = [session.run(None, one) for one in theirs]
    plain = session_of(path, asked, optimized=False)
    right = together(want)
    own = max(
        difference(together([session.run(None, rounded_otherwise(one, rng)) for one in theirs]), right),
        difference(together([plain.run(None, one) for one in theirs]), right),
    )
    kinds = {str(w.dtype) for one in want for w in one}
    found.limit = max(MARGIN * own, *[LIMITS.get(kind, 0.0) for kind in kinds], 0.0)
    found.error = difference(together([outputs(module, one) for one in feeds]), right)
    found.contrast = difference(want[0], want[1])
    if not found.error <= found.limit:
        # inputs that are quantised at once forget half a unit; what follows may still hang on the units that
        # libraries differ by in their exponentials
        sessions = [session_of(path, asked, weights=rng) for _ in range(DRAWS)]
        own = max(difference(together([s.run(None, one) for one in theirs]), right) for s in sessions)
        found.limit = max(found.limit, min(MARGIN * own, max(own, found.contrast / 10)))
    if not found.error <= found.limit:
        found.outcome, found.reason = "wrong", blame(network, feeds[0], want[0])
    runs = {"ours": module.run, "onnxruntime": lambda: session.run(None, theirs[0])}
    before = time.perf_counter()
    module.run()
    session.run(None, theirs[0])
    rounds = ROUNDS if time.perf_counter() - before < LONG else 3
    times = timed_in_turns(runs, rounds, SLICE)
    found.ours, found.onnxruntime = (statistics.median(times[side]) for side in runs)
    found.ratio = found.ours / found.onnxruntime


def blame(network: Network, feeds: Feeds, want: Sequence[Array]) -> str:
    """How far onnxruntime is from the imported graph in float64: what is far from it, too, was not read right."""
    try:
        exact: Any = run(network.original, feeds, network.params, dtype="float64")
    except Exception as error:  # a judgement on the side, which may lack what a kernel has
        return f"the graph has no value in float64: {_short(error)}"
    exact = list(exact) if isinstance(exact, tuple | list) else [exact]
    apart = max(
        largest_difference(np.nan_to_num(np.asarray(e, "float64")), np.nan_to_num(w.astype("float64")))
        for w, e in zip(want, exact, strict=True)
    )
    return f"onnxruntime is off by {apart:.1e} from the imported graph in float64"


def checked(path: Path, asked: Asked) -> Found:
    """What becomes of a model."""
    found = Found()
    try:
        start, before = time.perf_counter(), _processor_seconds()
        network = load_network(str(path), shapes=asked.shapes, fixed=asked.fixed)
        library = relay.build(network.graph, target="c", params=network.params)
        module = GraphModule(library["default"]())
        found.first_compilation, found.kernels = time.perf_counter() - start, len(library.kernels)
        found.its_python, found.its_compilers = np.subtract(_processor_seconds(), before).tolist()
        judged(path, asked, network, module, found)
    except TeError as refusal:
        found.outcome, found.reason = "refused", " ".join(str(refusal).split())[:LENGTH]
    except Exception as crash:  # whatever it is, it is what this script is here to find
        found.outcome, found.reason = "crashed", _short(crash)
    return found


def _processor_seconds() -> tuple[float, float]:
    """Those of this process, and of those that it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    own, children = [x.ru_utime + x.ru_stime for x in used]
    return own, children


def _short(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:LENGTH]


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", type=Path, metavar="FILE", help="the model")
    p.add_argument("asked", type=json.loads, metavar="JSON", help="`shapes`, `ranges`, `threads`, `gigabytes`")
    options = p.parse_args()
    asked = Asked(**options.asked)
    most = int(asked.gigabytes * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    print(json.dumps(asdict(checked(options.file, asked))), flush=True)


if __name__ == "__main__":
    report.run(main)
