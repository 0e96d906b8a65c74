"""Random networks through passes, fusion, tasks, programs, C and the executor, against the oracle."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import ansor
import relay_lite as relay
from relay_lite.ir.make import call, var
from relay_lite.ir.nodes import Constant, Function, Tuple, TupleGetItem
from relay_lite.ir.visit import free_vars
from te_lite.errors import TeError

from .bounded import compared, mismatch
from .network import Network, arrays
from .network_oracle import evaluate
from .outcome import Finding, Outcome, raised

Watch = Callable[[str], None]


@dataclass(frozen=True)
class NetworkJob:
    """A network to compile."""

    seed: int
    network: Network


def relay_function(network: Network) -> Function:
    """The network as a graph of relay_lite."""
    values = arrays(network)
    nodes: list[Any] = []
    for k, node in enumerate(network.nodes):
        if node[0] == "input":
            nodes.append(var(f"x{k}", node[1], "float32"))
        elif node[0] == "const":
            nodes.append(Constant(values[k]))
        else:
            nodes.append(_call(node[0], [nodes[i] for i in node[1]], dict(node[2])))
    outputs = [nodes[o] for o in network.outputs]
    body = outputs[0] if len(outputs) == 1 else Tuple(tuple(outputs))
    return Function(free_vars(body), body)


def _call(op: str, args: list[Any], attrs: dict[str, Any]) -> Any:
    match op:
        case "item":
            return TupleGetItem(args[0], attrs["index"])
        case "concatenate":
            return call(op, Tuple(tuple(args)), **attrs)
        case "take":
            return call(op, args[0], Constant(np.array(attrs.pop("indices"), "int32")), **attrs)
    return call(op, *args, **attrs)


def run_networks(jobs: Sequence[NetworkJob], watch: Watch = lambda text: None) -> list[Outcome]:
    """The outcome of each network: its tasks are extracted for both targets, and it is compiled and run in C."""
    with tempfile.TemporaryDirectory(prefix="whole_way_") as folder:
        os.environ["CODEGEN_C_CACHE"] = folder
        logging.disable(logging.WARNING)  # which kernels have no record
        return [_outcome(job, watch) for job in jobs]


def _outcome(job: NetworkJob, watch: Watch) -> Outcome:
    outcome = Outcome(job.seed)
    watch(f"seed {job.seed}: oracle")
    wanted = evaluate(job.network)
    outcome.compared = float(np.mean([compared(wanted[o]) for o in job.network.outputs]))
    phase, target = "build a graph", "any"
    try:
        graph = relay_function(job.network)
        for target in ("cuda", "c"):
            phase = "tasks"
            watch(f"seed {job.seed}: tasks ({target})")
            tasks, _ = ansor.extract_tasks(graph, {}, target)
            outcome.programs[f"tasks for {target}"] += len(tasks)
        phase = "compile"
        watch(f"seed {job.seed}: compile")
        lib = relay.build(graph, "c")
        phase = "run"
        watch(f"seed {job.seed}: run")
        got = _results(lib, job.network)
    except TeError as error:
        if type(error).__name__ in ("CompileError", "CallError"):
            outcome.findings.append(Finding("compiler", phase, target, str(error)))
        else:
            outcome.refuse(phase, target, error)
    except Exception as error:
        outcome.findings.append(Finding("exception", phase, target, raised(error)))
    else:
        _compare(job.network, wanted, got, outcome)
    return outcome


def _results(lib: Any, network: Network) -> list[np.ndarray]:
    module = relay.graph_executor.GraphModule(lib["default"]())
    values = arrays(network)
    module.run(**{f"x{k}": values[k] for k, node in enumerate(network.nodes) if node[0] == "input"})
    return [np.asarray(module.get_output(k)) for k in range(len(network.outputs))]


def _compare(network: Network, wanted: list[Any], got: list[np.ndarray], outcome: Outcome) -> None:
    for k, (o, array) in enumerate(zip(network.outputs, got, strict=True)):
        want = wanted[o]
        if (array.shape, array.dtype) != (want.v.shape, np.dtype("float32")):
            outcome.findings.append(Finding("mismatch", "run", "c", f"output {k} is {array.dtype}{array.shape}"))
            continue
        text = mismatch(want, array)
        if text:
            outcome.findings.append(Finding("mismatch", "run", "c", f"output {k}{text}"))
        else:
            outcome.programs["outputs of networks"] += 1
