"""`optimize`: a module that computes what another one does, by programs of ours."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from ansor.policy.effort import NONE
from te_lite.errors import require

from ..frontend.torch.traced import decomposed
from ..ir.errors import GraphError
from .dynamo import device_of, refuse_training
from .options import SUBJECT, Options, PathLike
from .partition import compile_graph
from .programs import Made, Programs, Run
from .recurrent import KeptWhole
from .written import write


def optimize(
    model: Any,
    example_inputs: Sequence[Any],
    *,
    trials: int = 0,
    seconds: float | None = None,
    log: PathLike | None = None,
    precision: str | None = None,
    target: str | None = None,
    effort: str = NONE,
    keep_faster: bool | None = None,
) -> OptimizedModule:
    """The model compiled for inputs like `example_inputs`, a tuple of its positional arguments; a `torch.nn.Module`.

    With `trials`, `seconds` or an `effort` (none, quick, full) programs are measured first, their records added to
    `log`, where one is named, and the best to the store (docs/store.md); records of `log` and of the store are used in
    any case.  `target` is that of the device of the tensors (`c` on the processor, `cuda` on a GPU) unless it is given;
    `precision` is that of products, as in `ansor tune-network --precision`.  Inputs of other shapes are compiled when
    they first come, and a model whose weights are written to is compiled again.  What we do not know runs in PyTorch,
    and is named in a log message.  With `keep_faster`, which an `effort` brings unless it is False, operators are tried
    in PyTorch, too, and stay there where a call of the whole takes less.  After a search default programs stay where
    they are faster.  What is kept is said in one line.

    Raises GraphError for a model that is training, one that `torch.export` cannot trace, and options that make no
    sense.
    """
    options = Options(trials, seconds, log, precision, target, effort, keep_faster)
    kind = type(model).__name__
    require(isinstance(model, torch.nn.Module), GraphError, SUBJECT, "a torch.nn.Module is needed", got=kind)
    made = OptimizedModule(model, options)
    with torch.no_grad():
        made.program(example_inputs, {})
    return made


class OptimizedModule(torch.nn.Module):
    """A model whose calls run compiled programs, one for each set of shapes; for inference only.

    The model is its submodule `model`, so its weights are those of `state_dict`.
    """

    def __init__(self, model: Any, options: Options) -> None:
        super().__init__()
        self.model, self._programs = model, Programs(options)
        self._parameters_of_model = list(model.parameters())
        self.training = False  # the modes of the model are its own

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the model gives for these arguments.  Raises GraphError where gradients are asked for."""
        run, leaves = self.program(args, kwargs)
        return run(*leaves)

    def program(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Run, list[Any]]:
        """What runs for such arguments, compiled but not run, as a model may write to buffers; its leaves."""
        subject, training = f"{SUBJECT} model {type(self.model).__name__}", self.model.training
        require(not training, GraphError, subject, "it must not be training; call model.eval() first")
        leaves, spec = (list(args), None) if _plain(args, kwargs) else tree_flatten((args, kwargs))
        refuse_training([*leaves, *self._parameters_of_model] if torch.is_grad_enabled() else ())
        shapes = tuple([(x.shape, x.stride(), x.dtype, x.device) if isinstance(x, torch.Tensor) else x for x in leaves])
        run = self._programs.get(
            (shapes, spec), (), lambda options: exported(self.model, tuple(args), kwargs, options), self._weights
        )
        return run, leaves

    def _weights(self) -> list[Any]:
        return [*self.model.parameters(), *self.model.buffers()]


def _plain(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return not kwargs and all(isinstance(x, torch.Tensor) for x in args)


def traced(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None = None) -> Any:
    """The `torch.export.ExportedProgram` of a model for such arguments, in core ATen, attention and recurrent layers.

    Raises GraphError for a model that cannot be traced.
    """
    try:
        with torch.no_grad(), KeptWhole():
            return decomposed(torch.export.export(model, args, dict(kwargs or {}), strict=False))
    except Exception as error:  # the tracer runs the code of the model, which raises what it likes
        reason = " ".join(str(error).split())[:300]
        law = "the model must be traceable by torch.export; torch.compile(model, backend='ansor') takes any"
        raise GraphError(f"{SUBJECT}: {law}, got {type(error).__name__}: {reason}") from error


def exported(model: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: Options) -> Made:
    """What runs a model for arguments of these shapes, called with the leaves of its arguments; its weights."""
    begun = time.monotonic()
    program = traced(model, args, kwargs)
    made = _Exported(program, [*args, *kwargs.values()], options, time.monotonic() - begun)
    return Made(made, made.weights, made.records)


class _Exported:
    """An exported program with its weights bound; what it writes to, it is given.

    `records` says whether records are used when it is made again.
    """

    def __init__(self, program: Any, given: Sequence[Any], options: Options, spent: float) -> None:
        signature = program.graph_signature
        values = {**program.state_dict, **program.constants}
        written = [spec for spec in signature.output_specs if spec.kind.name.endswith("_MUTATION")]
        places = {spec.arg.name: spec for spec in signature.input_specs}
        bound = {name: values[spec.target] for name, spec in places.items() if spec.kind.name != "USER_INPUT"}
        changed = {spec.target for spec in written}
        self.state = {n: v for n, v in bound.items() if places[n].target in changed}
        weights = {n: v for n, v in bound.items() if n not in self.state}
        self.users = [name for name, spec in places.items() if spec.kind.name == "USER_INPUT"]
        taken = [node.name for node in program.graph.nodes if node.op == "placeholder"]
        self.order = [name for name in taken if name not in weights]
        self.weights = list(weights.values())
        self.written = [spec.target for spec in written]
        self.targets = {places[n].target: v for n, v in self.state.items()}
        self.spec = program.call_spec.out_spec
        leaves = [x for x in tree_flatten(given)[0] if isinstance(x, torch.Tensor)]
        device = device_of([*leaves, *weights.values()])
        kept = compile_graph(program.graph_module, weights, options, device, spent)
        self.run, self.records = kept.run, kept.records
        self.direct = not self.state and not self.written and self.order == self.users

    def __call__(self, *leaves: Any) -> Any:
        if self.direct:
            return tree_unflatten(self.run(*leaves), self.spec)
        given = {**self.state, **dict(zip(self.users, leaves, strict=True))}
        outputs = list(self.run(*[given[name] for name in self.order]))
        places = [self.targets[t] if t in self.targets else given[t] for t in self.written]
        write(places, outputs[: len(places)])
        return tree_unflatten(outputs[len(self.written) :], self.spec)
