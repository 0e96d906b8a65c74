"""Named workloads and their keys: how a record says which computation it belongs to.

A key is the JSON text of a list: `[function name, argument ...]` for a registered function, or
`[hash, shape ...]` for tensors that were registered by themselves.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any, overload

from te_lite import ComputeDAG, Tensor, placeholder

from .errors import TaskError

WorkloadFunc = Callable[..., Sequence[Tensor]]

_FUNCTIONS: dict[str, WorkloadFunc] = {}
_TENSORS: dict[str, tuple[Tensor, ...]] = {}
_DAGS: dict[str, ComputeDAG] = {}


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
    Raises TaskError when the name is taken and `override` is False.
    """
    if callable(func_name):
        return register_workload(func_name.__name__, func_name, override)
    name = func_name

    def register(func: WorkloadFunc) -> WorkloadFunc:
        if name in _FUNCTIONS and not override:
            raise TaskError(f"workload {name!r}: is registered already; pass override=True to replace it")
        _FUNCTIONS[name] = func
        for key in [k for k in _DAGS if _decoded(k)[:1] == [name]]:
            del _DAGS[key]
        return func

    return register(f) if f is not None else register


def is_registered(name: str) -> bool:
    """Whether a workload function of this name is known."""
    return name in _FUNCTIONS


def _to_json(value: Any) -> Any:
    if isinstance(value, Tensor):
        return ["TENSOR", list(value.shape), value.dtype]
    if isinstance(value, tuple | list):
        return [_to_json(v) for v in value]
    value = value.item() if hasattr(value, "item") else value
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TaskError(f"workload argument: numbers, texts, tuples and tensors can be recorded, got {value!r}")


def _from_json(value: Any) -> Any:
    match value:
        case ["TENSOR", list() as shape, str() as dtype]:
            return placeholder(shape, dtype)
        case list():
            return tuple([_from_json(v) for v in value])
    return value


def make_workload_key(func: WorkloadFunc | str, args: Sequence[Any]) -> str:
    """The key of a registered function with arguments: `["matmul", 512, 512, 512]` as text."""
    name = func if isinstance(func, str) else func.__name__
    if not isinstance(func, str) and _FUNCTIONS.get(name) is not func:
        name = next((n for n, f in _FUNCTIONS.items() if f is func), name)
    if name not in _FUNCTIONS:
        raise TaskError(f"workload {name!r}: is not registered; decorate the function with @ansor.register_workload")
    return json.dumps([name, *map(_to_json, args)])


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
    if data[0] not in _FUNCTIONS:
        raise TaskError(
            f"workload {data[0]!r}: is not registered; decorate its function with @ansor.register_workload,"
            f" or give its tensors to ansor.register_workload_tensors"
        )
    try:
        return list(_FUNCTIONS[data[0]](*map(_from_json, data[1:])))
    except Exception as error:
        raise TaskError(f"workload {data[0]!r}: its function refuses the arguments {data[1:]}: {error}") from error


def workload_dag(workload_key: str) -> ComputeDAG:
    """The analysed computation behind a key; the same object every time, so that states can be compared."""
    if workload_key not in _DAGS:
        _DAGS[workload_key] = ComputeDAG(workload_key_to_tensors(workload_key))
    return _DAGS[workload_key]


def _flat(value: Any) -> list[Any]:
    return [x for v in value for x in _flat(v)] if isinstance(value, list) else [value]


def decode_workload_key(workload_key: str) -> tuple[str, tuple[Any, ...] | None]:
    """`(name or hash, all arguments in one flat tuple)`; `(key, None)` for a key that is no JSON list."""
    data = _decoded(workload_key)
    return (data[0], tuple(_flat(data[1:]))) if data else (workload_key, None)


def key_text(workload_key: str) -> str:
    """A workload key for people: `conv2d_layer(1, 7, 7, 512)`."""
    data = _decoded(workload_key)
    return f"{data[0]}({', '.join(map(json.dumps, data[1:]))})" if data else workload_key


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
            if (a == 0 or b == 0) and a != b:
                return math.inf
            if b != 0:
                if a % b:
                    return math.inf
                factor *= a / b
        elif type(a) is not type(b) or a != b:
            return math.inf
    return factor
