"""From a fused graph to its plan: the calls of its groups become steps, its tensors get storages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from ansor.core.device.network_plan import ExecutionPlan, Step, Storage, TensorPlace
from te_lite.errors import require

from ..ir.control import Branch, Loop
from ..ir.errors import GraphError
from ..ir.nodes import Array, Call, Constant, Expr, Function, FunctionCall, Tuple, TupleGetItem, Var, tensor_type
from ..ir.types import TensorType, fields_of
from ..ir.visit import post_order
from .memory import SMALL, KernelCall, Request, Value, lie_in_outputs, nbytes_of, pack, take_over

ARENA = "arena", "scratch"
"""Kinds of values that are needed for some steps only."""


@dataclass(frozen=True)
class GroupKernel:
    """How the kernel of a group is called.

    Positions count the parameters of the group, then its results.  `arguments` are those of the kernel's arguments;
    `results[j]` is where result `j` is found: its own position, or that of an equal parameter or earlier result.
    `scratch` are the bytes of the kernel's further arguments.  `over` are pairs of the kernel's arguments, a result and
    what it may be written over (`KernelCode`).
    """

    name: str
    arguments: tuple[int, ...]
    results: tuple[int, ...]
    scratch: tuple[int, ...] = ()
    over: tuple[tuple[int, int], ...] = ()


@dataclass
class _Builder:
    """The values and calls found so far; `of` gives the values of every node that was visited.

    In a loop, `again` are the values of the results and the scratch memory of its calls, which all steps share, and
    `wanted` the places of what a step gives.  In a branch, `guards` are the values that decide whether its calls run,
    each with what it must be.
    """

    kernel_of: Callable[[Function], GroupKernel]
    values: list[Value] = field(default_factory=list)
    calls: list[KernelCall] = field(default_factory=list)
    of: dict[int, tuple[int, ...]] = field(default_factory=dict)
    params: dict[int, Array] = field(default_factory=dict)
    again: dict[tuple[int, int], int] | None = None
    wanted: Mapping[tuple[int, int], int] = field(default_factory=dict)
    guards: tuple[tuple[int, bool], ...] = ()

    def new(self, kind: TensorType, storage: str = "arena") -> int:
        step = len(self.calls)
        self.values.append(Value(kind, len(self.values), storage, step, step))
        return len(self.values) - 1

    def same_storage(self, kind: TensorType, value: int, start: int = 0) -> int:
        """A value in the storage of another one, from its byte `start` on."""
        found = self.values[value]
        self.values.append(Value(kind, found.origin, start=found.start + start))
        return len(self.values) - 1

    def made(self, kind: TensorType, node: Expr, place: int, storage: str = "arena") -> int:
        """The value for a result of a call, by number, or for scratch memory behind those."""
        if (id(node), place) in self.wanted:
            return self.wanted[id(node), place]
        if self.again is None:
            return self.new(kind, storage)
        if (id(node), place) not in self.again:
            self.again[id(node), place] = self.new(kind, storage)
        return self.again[id(node), place]

    def visit(self, node: Expr) -> None:
        match node:
            case Var():
                require(id(node) in self.of, GraphError, repr(node), "a variable must be a parameter of the function")
            case Constant() if id(node) in self.of:
                pass  # it is read in every step of a loop
            case Constant(value=array):
                self.of[id(node)] = (self.new(tensor_type(node), "param"),)
                self.params[self.of[id(node)][0]] = array
            case Tuple(fields=fields):
                self.of[id(node)] = tuple([self.of[id(f)][0] for f in fields])
            case TupleGetItem(tuple_value=value, index=index):
                self.of[id(node)] = (self.of[id(value)][index],)
            case FunctionCall():
                self.of[id(node)] = tuple(self.results(node))
            case Loop():
                self.of[id(node)] = self.loop(node)
            case Branch():
                self.of[id(node)] = self.branch(node)
            case Call():
                raise GraphError(f"plan: operator {node.op.name} is in no fused group; run the pass FuseOps first")

    def results(self, node: FunctionCall) -> list[int]:
        """The values of a group: those of its kernel, or of its arguments if it only reshapes them."""
        given, types = [self.of[id(a)][0] for a in node.args], fields_of(node.type)
        sources = reshaped_params(node.function)
        if sources is None:
            return self.call(node, given, types)
        return [self.same_storage(t, given[p]) for t, p in zip(types, sources, strict=True)]

    def call(self, node: FunctionCall, given: list[int], types: tuple[TensorType, ...]) -> list[int]:
        kernel, positions = self.kernel_of(node.function), list(given)
        for j, (kind, found) in enumerate(zip(types, kernel.results, strict=True)):
            if found == len(given) + j:
                positions.append(self.made(kind, node, j))
                continue
            law = "what a step of a loop gives must be computed in it, and be no other result"
            require((id(node), j) not in self.wanted, GraphError, f"kernel {kernel.name}", law, result=j)
            positions.append(self.same_storage(kind, positions[found]))
        used = [positions[p] for p in kernel.arguments]
        behind = len(types)
        scratch = [
            self.made(TensorType((n,), "uint8"), node, behind + k, "scratch") for k, n in enumerate(kernel.scratch)
        ]
        self.needed(*used, *scratch, *[value for value, _ in self.guards])
        results = positions[len(given) :]
        own = [k for j, k in enumerate(results) if kernel.results[j] == len(given) + j]
        over = tuple([(used[result], used[given]) for result, given in kernel.over if used[result] in own])
        self.calls.append(KernelCall(kernel.name, tuple(used), tuple(own), tuple(scratch), over, self.guards))
        return results

    def needed(self, *values: int) -> None:
        """Values are needed by the next call."""
        for value in values:
            self.values[self.values[value].origin].last = len(self.calls)

    # ---------------------------------------------------------------------------------------------- loops

    def loop(self, node: Loop) -> tuple[int, ...]:
        """The calls of all steps.  States alternate between two values, what a step adds to a result is a part of it.

        A state that is also added to a result lies there alone.  The last two steps of a loop without a bound are taken
        again as long as its first state is true.
        """
        body, kinds = node.function.body, fields_of(node.type)
        assert isinstance(body, Tuple)
        places = [_computed(node.function, f) for f in body.fields]
        every = [self.made(kind, node, k) for k, kind in enumerate(kinds[node.states :])]
        shown = dict(zip(places[node.states :], every, strict=True))
        law = "the results that a loop puts together must differ"
        require(len(shown) == len(every), GraphError, "plan", law)
        hidden = [place for place in dict.fromkeys(places[: node.states]) if place not in shown]
        types = {place: tensor_type(f) for place, f in zip(places, body.fields, strict=True)}
        number = count(len(every))
        turns = {p: [self.made(types[p], node, next(number)) for _ in range(min(2, node.steps))] for p in hidden}
        before = [self.of[id(a)][0] for a in node.args]
        args, given = list(before), before
        order, outer, begins = post_order(body), (self.again, self.wanted), list[int]()
        self.again = again = {} if self.again is None else self.again
        for step in range(node.steps):
            begins.append(len(self.calls))
            k = node.slice_of(step)
            for n, (param, arg) in enumerate(zip(node.function.params, args, strict=True)):
                start = node.slice_taken(n, step) * nbytes_of(param.var_type) if n < node.sliced else 0
                self.of[id(param)] = (self.same_storage(param.var_type, arg, start),)
            parts = {p: self.same_storage(types[p], v, k * nbytes_of(types[p])) for p, v in shown.items()}
            self.wanted = {**parts, **{p: turns[p][step % 2] for p in hidden}}
            for inner in order:
                self.visit(inner)
            given = [self.of[id(f)][0] for f in body.fields]
            args[node.sliced : node.sliced + node.states] = given[: node.states]
        if node.unbounded:
            self.go_back(begins[-2], given[0])
        shared = (*again.values(), *[v for pair in turns.values() for v in pair], *before) if node.states else ()
        for value in shared:
            self.values[self.values[value].origin].apart = len(self.calls) - begins[0]
        self.again, self.wanted = outer
        return (*given[: node.states], *every)

    def go_back(self, first: int, condition: int) -> None:
        """Run the calls from `first` on again while a bool is true; what they read of before them is kept for that."""
        kept = [k for k, v in enumerate(self.values) if v.origin == k and v.first < first <= v.last]
        guards = (*self.guards, (condition, True))
        self.needed(*kept, *[value for value, _ in guards])
        self.calls.append(KernelCall("", (), (), (), (), guards, len(self.calls) - first))

    def branch(self, node: Branch) -> tuple[int, ...]:
        """The calls of both ways, each of which writes what the branch gives, under guards."""
        (condition, *given), outer = [self.of[id(a)][0] for a in node.args], (self.wanted, self.guards)
        found = [self.made(kind, node, k) for k, kind in enumerate(fields_of(node.type))]
        for function, wanted in zip(node.functions, (True, False), strict=True):
            body = function.body
            assert isinstance(body, Tuple)
            self.of |= {id(param): (value,) for param, value in zip(function.params, given, strict=True)}
            places = [_computed(function, f) for f in body.fields]
            law = "the results of a branch must differ"
            require(len(set(places)) == len(places), GraphError, "plan", law)
            self.wanted = dict(zip(places, found, strict=True))
            self.guards = (*outer[1], (condition, wanted))
            for inner in post_order(body):
                self.visit(inner)
        self.wanted, self.guards = outer
        return tuple(found)


def _computed(function: Function, node: Expr) -> tuple[int, int]:
    """The call in the function of a loop that computes one of its results, by id, and the number of its result."""
    index = 0
    while True:
        match node:
            case TupleGetItem(tuple_value=value, index=index):
                node = value
            case FunctionCall() if (sources := reshaped_params(node.function)) is not None:
                node, index = node.args[sources[index]], 0
            case FunctionCall():
                return id(node), index
            case _:
                raise GraphError(f"plan: what a step of a loop gives must be computed in it, not {node!r}")


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
    take_over(values, builder.calls)

    def request(k: int) -> Request:
        return Request(values[k].nbytes, values[k].first, values[k].last + _late(values[k], slack))

    lie_in_outputs(values, {k: request(k) for k, v in enumerate(values) if _own(values, k) in ARENA}, alignment)
    outside = [k for kind in ("input", "param", "output") for k, v in enumerate(values) if _own(values, k) == kind]
    inside = [k for kind in ARENA for k, v in enumerate(values) if _own(values, k) == kind]
    requests = [request(k) for k in inside]
    offsets, arena = pack(requests, alignment)
    whole = [
        *[Storage(values[k].kind, nbytes_of(values[k].type)) for k in outside],
        *[Storage("arena", r.nbytes, offset) for r, offset in zip(requests, offsets, strict=True)],
    ]
    numbers = _Numbers(values, {k: n for n, k in enumerate([*outside, *inside])})
    steps = tuple([
        Step(c.kernel, numbers.all(c.values, c.scratch), numbers.all(c.results, c.scratch),
             numbers.all([v for v, on in c.guards if on]), numbers.all([v for v, on in c.guards if not on]), c.back)
        for c in builder.calls
    ])  # fmt: skip

    def place(name: str, k: int) -> TensorPlace:
        law = "an output must be no part of what a loop puts together; compute it from that"
        require(numbers.is_whole(k), GraphError, "plan", law, output=name)
        return TensorPlace(name, values[k].type.shape, values[k].type.dtype, numbers.of(k))

    names = dict(zip(_fresh_names(function), builder.params, strict=False))
    plan = ExecutionPlan(
        (*whole, *numbers.parts), steps,
        tuple([place(v.name, builder.of[id(v)][0]) for v in function.params]),
        tuple([place(name, k) for name, k in names.items()]),
        tuple([place(f"output{n}", k) for n, k in enumerate(outputs)]),
        arena,
    )  # fmt: skip
    return plan, {name: builder.params[k] for name, k in names.items()}


def _late(v: Value, slack: int) -> int:
    """For how many steps the room of a value that is not needed any more is not used again."""
    small = nbytes_of(v.type) <= SMALL
    if v.apart:
        return v.apart * (2 * slack if small else min(slack, 1))
    return slack if small and v.kind == "arena" else 0


class _Numbers:
    """The numbers of storages: of values, and behind these of the parts of values, which get theirs when asked for."""

    def __init__(self, values: Sequence[Value], wholes: Mapping[int, int]) -> None:
        self.values, self.wholes, self.parts = values, wholes, list[Storage]()
        self._part: dict[Storage, int] = {}
        self._known: dict[int, int] = {}

    def is_whole(self, k: int) -> bool:
        """Whether a value fills its storage."""
        v = self.values[k]
        return v.start == 0 and nbytes_of(v.type) == nbytes_of(self.values[v.origin].type)

    def of(self, k: int) -> int:
        if k not in self._known:
            self._known[k] = self._number(k)
        return self._known[k]

    def _number(self, k: int) -> int:
        v = self.values[k]
        number = self.wholes[v.origin]
        if self.is_whole(k):
            return number
        part = Storage("part", nbytes_of(v.type), v.start, number)
        if part not in self._part:
            self._part[part] = len(self.wholes) + len(self.parts)
            self.parts.append(part)
        return self._part[part]

    def all(self, *several: Sequence[int]) -> tuple[int, ...]:
        return tuple([self.of(k) for values in several for k in values])


def _fresh_names(function: Function) -> Iterator[str]:
    """p0, p1, ... without the names of inputs."""
    taken = {v.name for v in function.params}
    return (name for name in map("p{}".format, count()) if name not in taken)


def _own(values: list[Value], k: int) -> str:
    """The kind of storage that belongs to value `k`; none for a value on another's storage."""
    return values[k].kind if values[k].origin == k else ""
