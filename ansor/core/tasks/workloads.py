"""Named workloads and their keys: how a record says which computation it belongs to.

A key is the JSON text of a list: `[function name, argument ...]` for a registered function, or
`[hash, shape ...]` for tensors that were registered by themselves.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import Any, overload

import numpy as np

from te_lite import ComputeDAG, Tensor, placeholder
from te_lite.computation.computation import require_workload
from te_lite.errors import TeError, require
from te_lite.expr.expr import SizeVar
from te_lite.expr.spelling import did_you_mean
from te_lite.hooks import Hook
from te_lite.later import when_called

from ..errors import TaskError
from ..values.parts import said

WorkloadFunc = Callable[..., Sequence[Tensor]]
first_difference: Callable[[ComputeDAG, ComputeDAG], tuple[str, str] | None] = when_called(
    "te_lite.printing.dag_difference", "first_difference"
)


@dataclass(frozen=True)
class LoggedWorkload:
    """What a log says of a workload: what to call it, how to make its computation, and what tells it from others."""

    name: str
    make: Callable[[], ComputeDAG]
    text: str


_HASH = r"[0-9a-f]{32}"
_FUNCTIONS: dict[str, WorkloadFunc] = {}
_TENSORS: dict[str, tuple[Tensor, ...]] = {}
_DAGS: dict[str, ComputeDAG] = {}
_LOGGED: dict[str, LoggedWorkload] = {}
OFFERED: Hook[[], Mapping[str, WorkloadFunc]] = Hook("the catalogue of workloads", "ansor.core.tasks.catalog")
"""The workloads of a name for as long as nobody registers one."""


@overload
def register_workload(func_name: WorkloadFunc, f: None = None, override: bool = False) -> WorkloadFunc: ...
@overload
def register_workload(func_name: str, f: WorkloadFunc, override: bool = False) -> WorkloadFunc: ...
@overload
def register_workload(
    func_name: str, f: None = None, override: bool = False
) -> Callable[[WorkloadFunc], WorkloadFunc]: ...
def register_workload(func_name: str | WorkloadFunc, f: WorkloadFunc | None = None, override: bool = False) -> Any:
    """Register a function that gives the tensors of a workload (inputs and outputs) for its arguments.

    Used as `@register_workload`, `@register_workload("name")` or `register_workload("name", f)`.
    The same function may come again, as in a cell of a notebook that is run twice: what it says then counts.
    Raises TaskError when another function has the name and `override` is False, and for what is no function of a name.
    """
    if callable(func_name):
        return register_workload(_name_of(func_name), func_name, override)
    name = func_name
    require(isinstance(name, str), TaskError, "register_workload", "a function or a name is needed", got=name)
    law = "a function that gives the tensors is needed behind the name"
    require(f is None or callable(f), TaskError, "register_workload", law, got=f)

    def register(func: WorkloadFunc) -> WorkloadFunc:
        if name in _FUNCTIONS and not override and not _is_again(func, _FUNCTIONS[name]):
            law = "another function is registered under this name; pass override=True to replace it"
            raise TaskError(f"workload {name!r}: {law}")
        _FUNCTIONS[name] = func
        _forget(name)
        return func

    return register(f) if f is not None else register


def _forget(name: str) -> None:
    for key in [k for k in _DAGS if _decoded(k)[:1] == [name]]:
        del _DAGS[key]


def _name_of(func: WorkloadFunc) -> str:
    named = isinstance(func, FunctionType | type)
    law = "a function that was not made by def has no name: give it one, as in register_workload('name', func)"
    require(named, TaskError, "register_workload", law, got=func)
    return str(func.__name__)


def _is_again(func: WorkloadFunc, known: WorkloadFunc) -> bool:
    """Whether a function is one that was defined before: it has its place in its module, or its very code."""
    if func is known or not (isinstance(func, FunctionType) and isinstance(known, FunctionType)):
        return func is known
    if (func.__module__, func.__qualname__) != (known.__module__, known.__qualname__):
        return False
    free = func.__closure__ or known.__closure__ or func.__defaults__ or known.__defaults__
    return "<" not in func.__qualname__ or (func.__code__ == known.__code__ and not free)


def _function(name: str) -> WorkloadFunc | None:
    return _FUNCTIONS.get(name) or (None if re.fullmatch(_HASH, name) else OFFERED().get(name))


def _names() -> list[str]:
    return [*_FUNCTIONS, *OFFERED()]


def function_of(workload_key: str) -> WorkloadFunc | None:
    """The function that makes the tensors of a key, if one is registered or offered under its name."""
    return _function((_decoded(workload_key) or [""])[0])


def registered_name(func: WorkloadFunc) -> str | None:
    """The name that a function is registered under, if it is."""
    return next((n for n in _names() if _function(n) is func), None)


def _to_json(value: Any) -> Any:
    if isinstance(value, Tensor):
        return ["TENSOR", list(value.shape), value.dtype]
    if isinstance(value, tuple | list):
        return [_to_json(v) for v in value]
    value = value.item() if hasattr(value, "item") and not (isinstance(value, np.ndarray) and value.shape) else value
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TaskError(f"workload argument: numbers, texts, tuples and tensors are recorded, got {value!r}{_hint(value)}")


def _hint(value: Any) -> str:
    array = "; an array is given as a list, by its tolist()" if isinstance(value, np.ndarray) else ""
    return "; sizes={...} says which values of open extents count" if isinstance(value, SizeVar) else array


def _from_json(value: Any) -> Any:
    match value:
        case ["TENSOR", list() as shape, str() as dtype]:
            return placeholder(shape, dtype)
        case list():
            return tuple([_from_json(v) for v in value])
    return value


def make_workload_key(func: WorkloadFunc | str, args: Sequence[Any]) -> str:
    """The key of a registered function with arguments: `["matmul", 512, 512, 512]` as text."""
    name = func if isinstance(func, str) else registered_name(func) or _name_of(func)
    if _function(name) is None:
        raise _unregistered(name, "decorate the function with @ansor.register_workload")
    return json.dumps([name, *map(_to_json, args)])


def _unregistered(name: str, law: str) -> TaskError:
    return TaskError(f"workload {name!r}: is not registered; {did_you_mean(name, _names())}{law}")


def register_workload_tensors(workload_key: str, tensors: Sequence[Tensor], override: bool = True) -> str:
    """Put already built tensors behind a key, and give the key."""
    if workload_key in _TENSORS and not override:
        raise TaskError(f"workload {workload_key}: is registered already; pass override=True to replace it")
    _TENSORS[workload_key] = tuple(tensors)
    _DAGS.pop(workload_key, None)
    return workload_key


def register_dag(workload_key: str, dag: ComputeDAG) -> None:
    """Put an analysed computation behind a key; it replaces the one that is there."""
    _TENSORS[workload_key] = dag.tensors
    _DAGS[workload_key] = dag


def _decoded(workload_key: str) -> list[Any]:
    try:
        data = json.loads(workload_key)
    except (ValueError, RecursionError):
        return []
    return data if isinstance(data, list) and data and isinstance(data[0], str) else []


def workload_key_to_tensors(workload_key: str) -> list[Tensor]:
    """The tensors behind a key: the registered list, or what the registered function gives.

    Raises TaskError when nothing is registered, or when the function fails on the recorded arguments.
    """
    if workload_key in _TENSORS:
        return list(_TENSORS[workload_key])
    data = _decoded(workload_key)
    if not data:
        raise TaskError(f"workload key {workload_key[:200]!r}: is not a JSON list that starts with a name")
    func = _function(data[0])
    if func is None:
        law = "decorate its function with @ansor.register_workload, or give its tensors to"
        raise _unregistered(data[0], f"{law} ansor.register_workload_tensors")
    try:
        tensors = func(*map(_from_json, data[1:]))
    except Exception as error:
        law = f"its function fails for the arguments {data[1:]}"
        raise TaskError(f"workload {data[0]!r}: {law}: {said(error)}") from error
    ok = isinstance(tensors, list | tuple) and all(isinstance(t, Tensor) for t in tensors) and tensors
    law = "its function must give a list of tensors, inputs and outputs"
    require(ok, TaskError, f"workload {data[0]!r}", law, got=tensors)
    require_workload(key_text(workload_key), tensors, TaskError)
    return list(tensors)


def workload_dag(workload_key: str) -> ComputeDAG:
    """The analysed computation behind a key; the same object every time, so that states can be compared."""
    if workload_key not in _DAGS:
        logged = None if _is_registered(workload_key) else _LOGGED.get(workload_key)
        made = _logged_dag(workload_key, logged) if logged else ComputeDAG(workload_key_to_tensors(workload_key))
        _DAGS[workload_key] = made
    return _DAGS[workload_key]


def offer_computation(workload_key: str, name: str, make: Callable[[], ComputeDAG], text: str) -> str:
    """Let `make()` be the computation of a key that nothing is registered for; `text` tells it from another one.

    Gives how the registered one differs from it, in words; nothing when it does not, or there is none.
    """
    known = _LOGGED.get(workload_key)
    if known is None or known.text != text:
        _LOGGED[workload_key] = LoggedWorkload(name, make, text)
        if known is not None and not _is_registered(workload_key):
            _DAGS.pop(workload_key, None)
    return _objection(workload_key, make) if _is_registered(workload_key) else ""


def _objection(workload_key: str, make: Callable[[], ComputeDAG]) -> str:
    """How the registered computation of a key differs from `make()`, where both can be had."""
    if re.fullmatch(_HASH, decode_workload_key(workload_key)[0]):
        return ""
    try:
        difference = first_difference(make(), workload_dag(workload_key))
    except TeError:
        return ""
    there, here = difference or ("", "")
    return f"they are of `{there}`, where the registered function now gives `{here}`" if difference else ""


def logged_name(workload_key: str) -> str:
    """What logs call a workload that nothing is registered for; empty when none does, or its key says it."""
    known = _LOGGED.get(workload_key)
    return "" if known is None or known.name == decode_workload_key(workload_key)[0] else known.name


def _is_registered(workload_key: str) -> bool:
    return workload_key in _TENSORS or function_of(workload_key) is not None


def _logged_dag(workload_key: str, known: LoggedWorkload) -> ComputeDAG:
    """Raises TaskError for a computation that cannot be used, or is not the one that the key names."""
    subject = f"workload {known.name!r} of a log"
    try:
        dag = known.make()
    except TeError as error:
        raise TaskError(f"{subject}: its computation cannot be used: {error}") from error
    name = decode_workload_key(workload_key)[0]
    ok = not re.fullmatch(_HASH, name) or dag.workload_key() == workload_key
    require(ok, TaskError, subject, "the log holds another computation than its key names")
    return dag


def _flat(value: Any) -> list[Any]:
    return [x for v in value for x in _flat(v)] if isinstance(value, list) else [value]


def decode_workload_key(workload_key: str) -> tuple[str, tuple[Any, ...] | None]:
    """`(name or hash, all arguments in one flat tuple)`; `(key, None)` for a key that is no JSON list."""
    data = _decoded(workload_key)
    return (data[0], tuple(_flat(data[1:]))) if data else (workload_key, None)


def key_text(workload_key: str, name: str = "") -> str:
    """A workload key for people: `conv2d_layer(1, 7, 7, 512)`; with a `name` instead of that of the key."""
    data = _decoded(workload_key)
    return f"{name or data[0]}({', '.join(map(json.dumps, data[1:]))})" if data else workload_key


def calc_workload_dis_factor(query: tuple[Any, ...], record: tuple[Any, ...]) -> float:
    """How many times larger the workload `query` is than `record`; both are `(flat arguments, name)`.

    1 for equal workloads, infinity when `record` does not divide `query`.
    """
    (args, name), (other_args, other_name) = query, record
    if name != other_name or args is None or other_args is None or len(args) != len(other_args):
        return math.inf
    factor = 1.0
    for a, b in zip(args, other_args, strict=True):
        if isinstance(a, int) and isinstance(b, int) and not isinstance(a, bool) and not isinstance(b, bool):
            if a != b and (0 in (a, b) or a % b):
                return math.inf
            factor *= a / b if b else 1.0
        elif type(a) is not type(b) or a != b:
            return math.inf
    return factor
