"""From a fused graph to its plan: the calls of its groups become steps, its tensors get storages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from ansor.core.network_plan import ExecutionPlan, Step, Storage, TensorPlace
from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.nodes import Array, Call, Constant, Expr, Function, FunctionCall, Tuple, TupleGetItem, Var, tensor_type
from ..ir.types import TensorType, TupleType, Type
from ..ir.visit import post_order
from .memory import Request, pack

SMALL = 1 << 22
"""Bytes of a tensor whose kernel may leave room for another one; larger ones fill a device by themselves."""


@dataclass(frozen=True)
class GroupKernel:
    """How the kernel of a group is called.

    Positions count the parameters of the group, then its results.  `arguments` are those of the kernel's arguments;
    `results[j]` is where result `j` is found: its own position, or that of an equal parameter or earlier result.
    `scratch` are the bytes of the kernel's further arguments.
    """

    name: str
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    scratch: tuple[int, ...] = ()


@dataclass
class _Value:
    """A tensor of the graph while the plan is made; `origin` is the value whose storage it uses, itself as a rule."""

    type: TensorType
    origin: int
    kind: str = "arena"
    first: int = 0
    last: int = 0


@dataclass
class _Call:
    kernel: GroupKernel
    values: tuple[int, ...]
    results: tuple[int, ...]


@dataclass
class _Builder:
    """The values and calls found so far; `of` gives the values of every node that was visited."""

    kernel_of: Callable[[Function], GroupKernel]
    values: list[_Value] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    params: dict[int, Array] = field(default_factory=dict)

    def new(self, kind: TensorType, storage: str = "arena") -> int:
        step = len(self.calls)
        self.values.append(_Value(kind, len(self.values), storage, step, step))
        return len(self.values) - 1

    def same_storage(self, kind: TensorType, value: int) -> int:
        self.values.append(_Value(kind, self.values[value].origin))
        return len(self.values) - 1

    def visit(self, node: Expr) -> None:
        match node:
            case Var():
                require(id(node) in self.of, GraphError, repr(node), "a variable must be a parameter of the function")
            case Constant(value=array):
                self.of[id(node)] = (self.new(tensor_type(node), "param"),)
                self.params[self.of[id(node)][0]] = array
            case Tuple(fields=fields):
                self.of[id(node)] = tuple([self.of[id(f)][0] for f in fields])
            case TupleGetItem(tuple_value=value, index=index):
                self.of[id(node)] = (self.of[id(value)][index],)
            case FunctionCall():
                self.of[id(node)] = tuple(self.results(node))
            case Call():
                raise GraphError(f"plan: operator {node.op.name} is in no fused group; run the pass FuseOps first")

    def results(self, node: FunctionCall) -> list[int]:
        """The values of a group: those of its kernel, or of its arguments if it only reshapes them."""
        given, types = [self.of[id(a)][0] for a in node.args], fields_of(node.type)
        sources = reshaped_params(node.function)
        if sources is None:
            return self.call(self.kernel_of(node.function), given, types)
        return [self.same_storage(t, given[p]) for t, p in zip(types, sources, strict=True)]

    def call(self, kernel: GroupKernel, given: list[int], types: tuple[TensorType, ...]) -> list[int]:
        positions = list(given)
        for j, (kind, found) in enumerate(zip(types, kernel.results, strict=True)):
            own = found == len(given) + j
            positions.append(self.new(kind) if own else self.same_storage(kind, positions[found]))
        used = [self.values[positions[p]].origin for p in kernel.arguments]
        for origin in used:
            self.values[origin].last = len(self.calls)
        results = positions[len(given) :]
        self.calls.append(_Call(kernel, tuple(used), tuple([k for k in results if self.values[k].origin == k])))
        return results


def fields_of(kind: Type) -> tuple[TensorType, ...]:
    """The tensors of a type."""
    return kind.fields if isinstance(kind, TupleType) else (kind,)


def reshaped_params(function: Function) -> tuple[int, ...] | None:
    """For a group that only reshapes: which parameter each of its results is.  None for any other group."""
    if not function.attrs.get("reshape_only"):
        return None
    body = function.body
    return tuple([_source(function, f) for f in (body.fields if isinstance(body, Tuple) else (body,))])


def _source(function: Function, node: Expr) -> int:
    while isinstance(node, Call):
        node = node.args[0]
    found = [k for k, v in enumerate(function.params) if v is node]
    require(len(found) == 1, GraphError, "plan", "a group that only reshapes must read its parameters", found=node)
    return found[0]


def make_plan(
    function: Function, kernel_of: Callable[[Function], GroupKernel], alignment: int, slack: int = 0
) -> tuple[ExecutionPlan, Mapping[str, Array]]:
    """The plan of a fused graph, and the values of its constants under the names p0, p1, ... in order of first use.

    `kernel_of` gives the kernel of a group.  Places in the arena are multiples of `alignment` bytes; those of at most
    `SMALL` bytes are not used again for `slack` steps, so that neighbouring steps are not kept from running together.
    Raises GraphError for an operator outside all groups, and for a free variable.
    """
    builder = _Builder(kernel_of)
    for v in function.params:
        builder.of[id(v)] = (builder.new(v.var_type, "input"),)
    for node in post_order(function.body):
        builder.visit(node)
    outputs = builder.of[id(function.body)]
    for k in outputs:
        origin = builder.values[builder.values[k].origin]
        origin.kind = "output" if origin.kind == "arena" else origin.kind
    return _finish(builder, function, outputs, alignment, slack)


def _finish(
    builder: _Builder, function: Function, outputs: tuple[int, ...], alignment: int, slack: int
) -> tuple[ExecutionPlan, Mapping[str, Array]]:
    values = builder.values
    outside = [k for kind in ("input", "param", "output") for k, v in enumerate(values) if _own(values, k) == kind]
    inside = [k for k in range(len(values)) if _own(values, k) == "arena"]

    def request(nbytes: int, first: int, last: int) -> Request:
        return Request(nbytes, first, last + (slack if nbytes <= SMALL else 0))

    requests = [request(nbytes_of(values[k].type), values[k].first, values[k].last) for k in inside]
    requests += [request(n, step, step) for step, c in enumerate(builder.calls) for n in c.kernel.scratch]
    offsets, arena = pack(requests, alignment)
    storages = (
        *[Storage(values[k].kind, nbytes_of(values[k].type)) for k in outside],
        *[Storage("arena", r.nbytes, offset) for r, offset in zip(requests, offsets, strict=True)],
    )
    number = {k: n for n, k in enumerate([*outside, *inside])}

    def place(name: str, k: int) -> TensorPlace:
        return TensorPlace(name, values[k].type.shape, values[k].type.dtype, number[values[k].origin])

    names = dict(zip(_fresh_names(function), builder.params, strict=False))
    plan = ExecutionPlan(
        storages, tuple(_steps(builder.calls, number)),
        tuple([place(v.name, builder.of[id(v)][0]) for v in function.params]),
        tuple([place(name, k) for name, k in names.items()]),
        tuple([place(f"output{n}", k) for n, k in enumerate(outputs)]),
        arena,
    )  # fmt: skip
    return plan, {name: builder.params[k] for name, k in names.items()}


def _steps(calls: Sequence[_Call], number: Mapping[int, int]) -> Iterator[Step]:
    """The calls as steps; their scratch memory has the numbers behind those of the values."""
    scratch = len(number)
    for call in calls:
        after = scratch + len(call.kernel.scratch)
        own = range(scratch, after)
        storages = (*[number[k] for k in call.values], *own)
        yield Step(call.kernel.name, storages, (*[number[k] for k in call.results], *own))
        scratch = after


def _fresh_names(function: Function) -> Iterator[str]:
    """p0, p1, ... without the names of inputs."""
    taken = {v.name for v in function.params}
    return (name for name in map("p{}".format, count()) if name not in taken)


def _own(values: list[_Value], k: int) -> str:
    """The kind of storage that belongs to value `k`; none for a value on another's storage."""
    return values[k].kind if values[k].origin == k else ""


def nbytes_of(kind: TensorType) -> int:
    """The bytes of a tensor."""
    return TensorPlace("", kind.shape, kind.dtype, 0).nbytes
