"""One model of the zoo: exported, imported, compiled, compared with onnxruntime; its emission for CUDA.

python -m benchmarks.zoo_check FOLDER MODEL EXPORTER...      # one JSON line an exporter; `benchmarks.zoo` starts it
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import onnx
import onnxruntime

import relay_lite as relay
from ansor.core.target.target import Target
from benchmarks import report
from benchmarks.zoo_models import MODELS, Input, live_model
from relay_lite.compiler.group_programs import choose_program, wanted
from relay_lite.compiler.optimize import group_uses, optimize
from relay_lite.frontend import from_onnx
from relay_lite.ir.module import IRModule, main_function
from relay_lite.ir.nodes import Call, Constant, Expr, Tuple, TupleGetItem, Var
from relay_lite.ir.reference import run
from relay_lite.ir.visit import post_order
from relay_lite.runtime.assemble import reshaped_params
from relay_lite.runtime.devices import network_backend
from relay_lite.transform import PassContext
from relay_lite.tuning.tune_network import largest_difference
from te_lite.errors import TeError

Array: TypeAlias = "np.ndarray[Any, np.dtype[Any]]"
Feeds: TypeAlias = Mapping[str, Array]
LIMIT = 1e-4
"""The largest difference from onnxruntime, relative to the largest value of an output."""
CONTRAST = 1e-2
"""By how much of the largest value the results of two inputs must differ, or the comparison says little."""
EXPORTERS: Mapping[str, tuple[bool, int]] = {
    "legacy-17": (False, 17),
    "new-18": (True, 18),
    "new-20": (True, 20),
    "new-21": (True, 21),
    "new-22": (True, 22),
    "new-23": (True, 23),
}
"""Whether it is torch's new exporter, and the opset it is asked for."""
CUDA = "cuda -arch=sm_90"
LENGTH = 300


@dataclass(frozen=True)
class Result:
    """`outcome`: see `benchmarks.zoo`; `cuda`: "ok", or why no CUDA text was made of the default programs."""

    exporter: str
    outcome: str
    reason: str = ""
    error: float | None = None
    contrast: float | None = None
    kernels: int | None = None
    cuda: str = ""


def exported_path(folder: Path, name: str, exporter: str) -> Path:
    """Where a model from an exporter is."""
    return folder / f"{name}-{exporter}.onnx"


def random_inputs(inputs: Sequence[Input], seed: int) -> list[Any]:
    """Random tensors for the inputs of a model."""
    torch: Any = import_module("torch")
    generator = torch.Generator().manual_seed(seed)
    return [i.draw(torch, generator) for i in inputs]


def export(model: Any, inputs: Sequence[Any], path: Path, exporter: str) -> str:
    """Write the model to `path`; why the exporter cannot, or ""."""
    new, opset = EXPORTERS[exporter]
    torch: Any = import_module("torch")
    try:
        with warnings.catch_warnings(), redirect_stdout(sys.stderr):
            warnings.simplefilter("ignore")
            torch.onnx.export(model, tuple(inputs), str(path), opset_version=opset, dynamo=new)
    except Exception as error:  # exporters raise what they like
        path.unlink(missing_ok=True)
        return _short(error)
    opsets = onnx.load(path, load_external_data=False).opset_import
    found = next(o.version for o in opsets if o.domain in ("", "ai.onnx"))
    if found == opset:
        return ""
    path.unlink()
    return f"it gave opset {found}"


def _short(error: BaseException) -> str:
    """The type and the first line of an error, or of the one that it came from."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:LENGTH]


class Checker:
    """A model and two random inputs; graphs that were compiled already are known by their digest.

    A file `MODEL-EXPORTER.onnx` that is in the folder is read, others are written there.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.folder = name, folder
        self.inputs = [random_inputs(MODELS[name].inputs, seed) for seed in (1, 2)]
        self.done: dict[str, tuple[str, Result]] = {}
        self.emitted: set[str] = set()

    @cached_property
    def model(self) -> Any:
        return live_model(self.name)[0]

    def result(self, exporter: str) -> Result:
        """What becomes of the model from one exporter."""
        path = exported_path(self.folder, self.name, exporter)
        reason = "" if path.exists() else export(self.model, self.inputs[0], path, exporter)
        if reason:
            return Result(exporter, "not exported", reason)
        try:
            module, _ = from_onnx(path)
            digest = graph_digest(module)
            if digest in self.done:
                same, found = self.done[digest]
                return Result(**{**asdict(found), "exporter": exporter, "reason": found.reason or f"graph of {same}"})
            found = self._compared(exporter, path, module)
        except TeError as refusal:
            return Result(exporter, "refused", " ".join(str(refusal).split()))
        except Exception as crash:  # whatever it is, it is what this script is here to find
            return Result(exporter, "crashed", _short(crash))
        self.done[digest] = exporter, found
        return found

    def _compared(self, exporter: str, path: Path, module: IRModule) -> Result:
        """Compile, run both inputs, compare with onnxruntime."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        names = [value.name for value in session.get_inputs()]
        feeds = [{n: t.numpy() for n, t in zip(names, tensors, strict=True)} for tensors in self.inputs]
        want = [session.run(None, dict(f)) for f in feeds]
        library = relay.build(module, "c")
        network = relay.graph_executor.GraphModule(library["default"]())
        errors = [_worst(_outputs(network, f), w) for f, w in zip(feeds, want, strict=True)]
        contrast = min(largest_difference(a, b) for a, b in zip(*want, strict=True))
        kernels = len(library.kernels)
        outcome = "wrong" if max(errors) > LIMIT else "pass" if contrast >= CONTRAST else "vacuous"
        reason = _blame(module, feeds[0], want[0]) if outcome == "wrong" else ""
        return Result(exporter, outcome, reason, max(errors), contrast, kernels, cuda_text(module, self.emitted))


def _outputs(network: Any, feeds: Feeds) -> list[Array]:
    network.run(**feeds)
    return [network.get_output(k).numpy() for k in range(network.get_num_outputs())]


def _worst(got: Sequence[Array], want: Sequence[Array]) -> float:
    """The largest relative difference over all outputs; infinite where shapes or dtypes differ."""
    pairs = list(zip(got, want, strict=True))
    same = all((g.shape, g.dtype) == (w.shape, w.dtype) for g, w in pairs)
    return max(largest_difference(g, w) for g, w in pairs) if same else float("inf")


def _blame(module: IRModule, feeds: Feeds, want: Sequence[Array]) -> str:
    """How far onnxruntime is from the graph in float64: what is far from it, too, was not read right."""
    exact: Any = run(module, feeds, dtype="float64")
    exact = exact if isinstance(exact, tuple | list) else [exact]
    apart = max(largest_difference(w, e) for w, e in zip(want, exact, strict=True))
    return f"onnxruntime is off by {apart:.1e} from the imported graph in float64"


def cuda_text(module: IRModule, emitted: set[str]) -> str:
    """Emit the default programs for CUDA, which takes no GPU: "ok", or the refusal or crash.

    `emitted` holds the workloads that were emitted before, which are left out.
    """
    backend, target = network_backend("cuda"), Target(CUDA)
    try:
        with PassContext(opt_level=3):
            fused = optimize(module, {}, target, for_build=True)
        for function in group_uses(fused):
            if reshaped_params(function) is not None:
                continue
            need = wanted(function, target)
            if need.group.workload_key not in emitted:
                program = choose_program(need, target, lambda func: backend.accept(func, CUDA))
                backend.code(program.func, CUDA)
                emitted.add(need.group.workload_key)
    except TeError as refusal:
        return f"refused: {refusal}"
    except Exception as crash:
        return f"crashed: {_short(crash)}"
    return "ok"


def graph_digest(module: IRModule) -> str:
    """A digest of everything a graph computes: equal ones are the same program."""
    main = main_function(module)
    digest, number = hashlib.sha256(), {id(v): k for k, v in enumerate(main.params)}
    for e in post_order(main.body):
        number.setdefault(id(e), len(number))
        digest.update(repr(_parts(e, number)).encode())
        if isinstance(e, Constant):
            digest.update(np.ascontiguousarray(e.value).tobytes())
    return digest.hexdigest()


def _parts(e: Expr, number: Mapping[int, int]) -> tuple[Any, ...]:
    match e:
        case Call():
            return e.op.name, [number[id(a)] for a in e.args], sorted(e.attrs.items(), key=lambda entry: entry[0])
        case Tuple():
            return "tuple", [number[id(f)] for f in e.fields]
        case TupleGetItem():
            return "item", number[id(e.tuple_value)], e.index
        case Var():
            return "input", number[id(e)], str(e.type)
        case _:
            return type(e).__name__, str(e.type)


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=Path, metavar="FOLDER", help="where ONNX files are, or are written to")
    p.add_argument("model", choices=MODELS, metavar="MODEL", help="one of the models of `benchmarks.zoo`")
    p.add_argument("exporters", nargs="+", choices=EXPORTERS, metavar="EXPORTER", help=f"of {', '.join(EXPORTERS)}")
    options = p.parse_args()
    report.require_packages("torch")
    checker = Checker(options.model, options.folder)
    for exporter in options.exporters:
        print(json.dumps(asdict(checker.result(exporter))), flush=True)


if __name__ == "__main__":
    report.run(main)
