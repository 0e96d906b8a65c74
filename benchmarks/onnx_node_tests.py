"""ONNX's own node tests through the importer and the compiler: which pass, what is refused, what is wrong.

    python -m benchmarks.onnx_node_tests [--data FOLDER] [--only TEXT] [--target c|reference] [--json FILE]

`--data` is the folder `onnx/backend/test/data/node` of a wheel of onnx 1.18, which pins the tests; without it the
installed onnx generates its own.  Counted are the tests of the default domain without the loss operators.  An input
that a static graph needs before it runs (a shape, axes) is given as an initializer, as models hold it.  A test
"differs" when its data are contradicted by onnxruntime, which gives what we give, or by ONNX's data of another version.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import relay_lite as relay
from benchmarks import report
from relay_lite.frontend import from_onnx
from relay_lite.ir.reference import run
from te_lite.errors import TeError
from te_lite.expr.dtype import FLOATS, computed

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Value: TypeAlias = "Array | list[Array] | None"
"""A tensor, a sequence of them, or nothing."""
Arrays: TypeAlias = Sequence[Any]
LOSSES = ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss")
LOSS_TESTS = ("test_sce_", "test_nllloss_")
TARGETS = ("reference", "c")
LATER = tuple(f"test_castlike_{a}_to_{b}" for a in ("FLOAT", "FLOAT16") for b in ("INT4", "UINT4", "FLOAT4E2M1"))
"""Of floats out of range: data of onnx 1.18 stop at the ends (those of Cast), data of later versions wrap around."""
OUTCOMES = ("pass", "differs", "refused", "wrong", "crashed")


@dataclass(frozen=True, eq=False)
class Case:
    """A model, its inputs in the order of the graph, what is wanted, and how far a result may be off."""

    name: str
    model: Any
    data: Callable[[], tuple[Arrays, Arrays]]
    rtol: float = 1e-3
    atol: float = 1e-7

    @property
    def operator(self) -> str:
        """The operator that is tested; of an expanded one the name of the test says it."""
        ops = {n.op_type for n in self.model.graph.node}
        return ops.pop() if len(ops) == 1 else "several (" + self.name.removeprefix("test_").split("_")[0] + ")"


@dataclass(frozen=True)
class Result:
    """`outcome`: see `OUTCOMES`; `known`: how many inputs were given as initializers."""

    name: str
    operator: str
    outcome: str
    known: int = 0
    reason: str = ""


def generated(module: str | None = None) -> Iterator[Case]:
    """The tests that the installed onnx generates; those that one of its modules draws are there first."""
    from onnx.backend.test.case import node  # noqa: PLC0415  (what is imported below it draws its tests)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if module is None:
            found = node.collect_testcases(None)
        else:
            import_module(f"{node.__name__}.{module}")
            found = node._NodeTestCases
    for case in found:
        yield Case(case.name, case.model, partial(_arrays, case), case.rtol, case.atol)


def _arrays(case: Any) -> tuple[Arrays, Arrays]:
    """The values of a generated test, some of which are protocol buffers, as arrays."""
    inputs, outputs = ([_array(value) for value in group] for group in case.data_sets[0])
    return inputs, outputs


def _array(value: Any) -> Value:
    """The values of a tensor or of those of a sequence; of an optional without a value nothing."""
    match value:
        case onnx.TensorProto():
            return numpy_helper.to_array(value)
        case onnx.SequenceProto():
            return [np.asarray(v) for v in numpy_helper.to_list(value)]
        case onnx.OptionalProto():
            return _array(numpy_helper.to_optional(value))
        case None:
            return None
        case list():
            return [np.asarray(_array(v)) for v in value]
    return np.asarray(value)


def stored(folder: Path) -> Iterator[Case]:
    """The tests in `FOLDER/test_*/`."""
    for path in sorted(folder.glob("test_*/model.onnx")):
        yield Case(path.parent.name, onnx.load(path), partial(_data_set, path.parent / "test_data_set_0"))


def _data_set(folder: Path) -> tuple[Arrays, Arrays]:
    """The tensors `input_K.pb` and `output_K.pb`."""
    kinds = ("input", "output")
    graph = onnx.load(folder.parent / "model.onnx").graph
    types = [[value.type for value in group] for group in (graph.input, graph.output)]
    inputs, outputs = (
        [_stored(folder / f"{kind}_{k}.pb", t) for k, t in enumerate(group)]
        for kind, group in zip(kinds, types, strict=True)
    )
    return inputs, outputs


def _stored(file: Path, kind: Any) -> Value:
    """The value of a file of a type."""
    messages: dict[str, Any] = {"optional_type": onnx.OptionalProto, "sequence_type": onnx.SequenceProto}
    message = messages.get(kind.WhichOneof("value"), onnx.TensorProto)()
    message.ParseFromString(file.read_bytes())
    return _array(message)


def is_core(case: Case, losses: bool = False) -> bool:
    """Whether a test is of the default domain, and not of a loss unless `losses`."""
    domains = {n.domain for n in case.model.graph.node}
    loss = case.name.startswith(LOSS_TESTS) or any(n.op_type in LOSSES for n in case.model.graph.node)
    return domains <= {"", "ai.onnx"} and (losses or not loss)


def cases(folder: Path | None, only: str = "", losses: bool = False) -> list[Case]:
    """The core tests whose name contains `only`."""
    found = generated() if folder is None else stored(folder)
    return [typed(case) for case in found if is_core(case, losses) and only in case.name]


def typed(case: Case) -> Case:
    """The test with data of the dtypes that its model declares: some data hold the bits of bfloat16 as integers."""
    ends = (case.model.graph.input, case.model.graph.output)
    kinds = [[value.type.tensor_type.elem_type for value in values] for values in ends]

    def data() -> tuple[Arrays, Arrays]:
        pairs = zip(case.data(), kinds, strict=True)
        inputs, outputs = ([_as(a, k) for a, k in zip(*pair, strict=True)] for pair in pairs)
        return inputs, outputs

    return replace(case, data=data)


def _as(value: Any, kind: int) -> Any:
    bits = kind == onnx.TensorProto.BFLOAT16 and isinstance(value, np.ndarray) and value.dtype == np.uint16
    return value.view("bfloat16") if bits else value


def tried(case: Case, target: str) -> Result:
    """What becomes of one test."""
    for choose in (_nothing, _lists, _all_but_the_first, _everything):
        try:
            known = choose(case)
            wrong = _difference(case, target, known)
        except TeError as refusal:
            reason = str(refusal)
        except Exception as crash:  # whatever it is, it is what this script is here to find
            return Result(case.name, case.operator, "crashed", 0, f"{type(crash).__name__}: {crash}")
        else:
            outcome = "pass" if not wrong else "differs" if _contradicted(case, target, known) else "wrong"
            return Result(case.name, case.operator, outcome, len(known), wrong)
    return Result(case.name, case.operator, "refused", 0, reason)


def _contradicted(case: Case, target: str, known: Sequence[int]) -> bool:
    """Whether something else says that the data of a test are wrong."""
    return case.name.startswith(LATER) or _agrees_elsewhere(case, target, known)


def _agrees_elsewhere(case: Case, target: str, known: Sequence[int]) -> bool:
    """Whether onnxruntime gives what we give, where the data of the test say something else."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    names = [value.name for value in case.model.graph.input]
    try:
        session = onnxruntime.InferenceSession(without_bfloat16(case.model).SerializeToString(), options)
        given = [_widened(a) for a in case.data()[0]]
        want = session.run(None, dict(zip(names, given, strict=True)))
    except Exception:  # it has exceptions of its own for what it does not run, and has no say then
        return False
    found = [_widened(a) for a in _results(case, target, known)]
    return not any(_apart(got, other, case) for got, other in zip(found, _flat(want), strict=True))


def _widened(value: Any) -> Any:
    """A tensor of bfloat16 as one of floats; all else as it is."""
    bfloat16 = isinstance(value, np.ndarray) and value.dtype == "bfloat16"
    return value.astype(np.float32) if bfloat16 else value


def _flat(values: Arrays) -> list[Array]:
    """The tensors of a list of tensors and sequences."""
    return [np.asarray(a) for v in values if v is not None for a in (v if isinstance(v, list) else [v])]


def without_bfloat16(model: Any) -> Any:
    """The model with float inputs and outputs instead of bfloat16, which onnxruntime takes and gives in no array."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph, bfloat16, casts = changed.graph, onnx.TensorProto.BFLOAT16, []
    for values, made in ((graph.input, False), (graph.output, True)):
        for value in values:
            if value.type.tensor_type.elem_type == bfloat16:
                value.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
                outer, inner = value.name, f"{value.name}_in_bfloat16"
                for node in graph.node:
                    names = node.output if made else node.input
                    names[:] = [inner if name == outer else name for name in names]
                to = onnx.TensorProto.FLOAT if made else bfloat16
                ends = ([inner], [outer]) if made else ([outer], [inner])
                casts.append((made, onnx.helper.make_node("Cast", *ends, to=to)))
    nodes = [c for made, c in casts if not made] + list(graph.node) + [c for made, c in casts if made]
    del graph.node[:]
    graph.node.extend(nodes)
    return changed


def _nothing(case: Case) -> list[int]:
    return []


def _lists(case: Case) -> list[int]:
    return [k for k in _all_but_the_first(case) if np.ndim(case.data()[0][k]) < 2]


def _all_but_the_first(case: Case) -> list[int]:
    return _everything(case)[1:]


def _everything(case: Case) -> list[int]:
    return list(range(len(case.model.graph.input)))


def _difference(case: Case, target: str, known: Sequence[int]) -> str:
    """What is wrong with the results of a test, "" when nothing is.  Raises TeError for what is refused."""
    pairs = zip(_results(case, target, known), _flat(case.data()[1]), strict=True)
    return next((text for text in (_apart(got, want, case) for got, want in pairs) if text), "")


def _results(case: Case, target: str, known: Sequence[int]) -> Arrays:
    """What the outputs of a test hold, as the graph reference or a compiled network computes them."""
    module, feeds = _imported(case, known)
    if target == "reference":
        found = run(module, feeds)
    else:
        network = relay.graph_executor.GraphModule(relay.build(module, target)["default"]())
        network.run(**feeds)
        found = [np.asarray(network.get_output(k)) for k in range(len(_flat(case.data()[1])))]
    return list(found) if isinstance(found, tuple | list) else [found]


def _imported(case: Case, known: Sequence[int]) -> tuple[relay.IRModule, Mapping[str, Array]]:
    """The graph of a test whose inputs `known` are initializers, and the values of the others."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    names = [value.name for value in model.graph.input]
    arrays = case.data()[0]
    shapes = {n: None for n, a in zip(names, arrays, strict=True) if a is None}
    sequences = {n: a for n, a in zip(names, arrays, strict=True) if isinstance(a, list)}
    single = {n: a for n, a in zip(names, arrays, strict=True) if n not in sequences and a is not None}
    stated = {n: single.pop(n) for k, n in enumerate(names) if k in known and n in single}
    model.graph.initializer.extend(numpy_helper.from_array(a, n) for n, a in stated.items())
    module, _ = from_onnx(model, {**shapes, **{n: [v.shape for v in a] for n, a in sequences.items()}})
    parts = {f"{n}[{k}]": v for n, a in sequences.items() for k, v in enumerate(a)}
    return module, {**single, **parts}


def _apart(got: Array, want: Array, case: Case) -> str:
    """How a result differs from what is wanted: shape, dtype or values.

    The tolerances are those of ONNX's own runner, and a millionth of the largest value for what is close to 0; results
    in bfloat16 may be two steps off, but for casts: the data are rounded in between.
    """
    want = np.asarray(want)
    rtol = case.rtol
    if want.dtype == "bfloat16" and not case.operator.startswith(("Cast", "several (cast")):
        rtol = 2.0**-6
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype} {got.shape} instead of {want.dtype} {want.shape}"
    floats = str(want.dtype) in FLOATS
    got, want = (x.astype(computed(str(x.dtype))) for x in (got, want))
    finite = np.abs(want[np.isfinite(want)]) if floats else np.zeros(1)
    least = 1e-6 * float(finite.max(initial=0))
    if np.allclose(got, want, rtol, max(case.atol, least), equal_nan=floats):
        return ""
    with np.errstate(all="ignore"):
        apart = np.abs(got.astype(np.float64) - want.astype(np.float64))
    return f"off by up to {np.nanmax(apart):.3g}"


def summary(results: Sequence[Result]) -> dict[str, int]:
    """How many tests have each outcome."""
    counts = Counter(r.outcome for r in results)
    return {name: counts[name] for name in OUTCOMES}


def _print(results: Sequence[Result]) -> None:
    refused = Counter(r.operator for r in results if r.outcome == "refused")
    report.table([[op, n] for op, n in refused.most_common()], ["operator", "refused"])
    for outcome in ("differs", "wrong", "crashed"):
        for r in results:
            if r.outcome == outcome:
                print(f"{outcome}: {r.name}: {r.reason}")
    counts = summary(results)
    report.table([[name, n, 100 * n / max(len(results), 1)] for name, n in counts.items()], ["outcome", "tests", "%"])


def main() -> None:
    p = report.parser(__doc__ or "")
    p.add_argument(
        "--data", type=report.path_to_read, metavar="FOLDER", help="onnx/backend/test/data/node of onnx 1.18"
    )
    p.add_argument("--only", default="", metavar="TEXT", help="tests whose name contains TEXT")
    p.add_argument("--losses", action="store_true", help="count the tests of the loss operators too")
    p.add_argument(
        "--shared",
        type=report.path_to_read,
        metavar="FOLDER",
        help="also count the tests that FOLDER of another onnx holds",
    )
    p.add_argument("--target", choices=TARGETS, default="reference", help="compile, or run the graph in NumPy")
    p.add_argument("--why", action="store_true", help="print the sentence of every refusal")
    options = p.parse_args()
    start = time.perf_counter()
    found = cases(options.data, options.only, options.losses)
    results = [tried(case, options.target) for case in found]
    _print(results)
    for r in results:
        if options.why and r.outcome == "refused":
            print(f"refused: {r.name}: {r.reason}")
    known = [r.known for r in results if r.outcome == "pass"]
    print(f"{len(known) - known.count(0)} of those that pass had inputs given as initializers")
    shared = {}
    if options.shared is not None:
        names = {path.name for path in options.shared.glob("test_*")}
        count = sum(r.outcome in ("pass", "differs") for r in results if r.name in names)
        shared = {"shared": sum(r.name in names for r in results), "shared_pass": count}
        print(f"{count} of the {shared['shared']} tests that {options.shared} holds too pass")
    print(f"{len(results)} tests in {time.perf_counter() - start:.0f} s")
    report.write_json(options.json, {"target": options.target, **summary(results), **shared, "tests": {
        outcome: [r.name for r in results if r.outcome == outcome] for outcome in OUTCOMES[1:]
    }})  # fmt: skip


if __name__ == "__main__":
    report.run(main)
