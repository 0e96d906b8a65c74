"""A function of lanes is written down once, operation by operation, and from then on run from its trace.

    record   the function is called with symbols for its arrays; every NumPy function that is called on a symbol becomes
             an operation on the trace, and what was computed before is not computed again
    replay   the operations whose results are wanted, one after the other, on arrays of any number of lanes

The list has no Python in it but one loop.  The results are bit for bit those of the function: it never asks for the
truth of a lane, so it does the same operations for all arrays.  Only the order of two operands that may
change places is not kept.

A population that is searched is described in every generation, most of the time with the variants of the one before.
Writing a trace takes as long as a few descriptions of some hundred rows, so a variant that is seen once gets none.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import Any, Generic, NoReturn, TypeVar

import numpy as np

from ..core.target.hardware import HardwareParams
from ..core.target.target import Target
from .programs import Origin, Programs, RowPrograms
from .spaces import Variant

Op = Callable[..., Any]
Operation = tuple[Op, tuple[int, ...], int]
"""Operation, places of its arguments, place of its result."""

Step = tuple[Op, int, int, tuple[int, ...], int]
"""Operation, registers of its first and second argument, of all of more than two, of its result; -1 and () for none."""

_COMMUTE = frozenset((np.add, np.multiply, np.minimum, np.maximum, np.bitwise_and, np.logical_and))
_NEUTRAL: dict[Op, float] = {np.multiply: 1, np.bitwise_and: True, np.logical_or: False, np.add: 0}
"""What leaves the other operand as it is; 0 does so beside integers only, since -0.0 + 0 is 0.0."""


def _operator(op: Op) -> Any:
    return lambda self, other: self.trace.call(op, self, other)


def _reflected(op: Op) -> Any:
    return lambda self, other: self.trace.call(op, other, self)


class Symbol:
    """An array that is not known yet.  `sample` is what it is for one lane; it tells types, and no choice rests on it.

    Raises TypeError when it is asked for its truth or its elements, or used in a NumPy function with options.
    """

    __slots__ = ("place", "sample", "trace")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, place: int, sample: Any) -> None:
        self.trace, self.place, self.sample = trace, place, sample

    def __array_ufunc__(self, ufunc: Op, method: str, *inputs: Any, **options: Any) -> Any:
        if method != "__call__" or options:
            raise TypeError(f"{ufunc.__name__}: only plain calls can be recorded, got method={method!r} {options=}")
        return self.trace.call(ufunc, *inputs)

    def __array_function__(self, function: Op, types: Any, args: Any, options: Any) -> Any:
        if options:
            raise TypeError(f"{function.__name__}: only plain calls can be recorded, got {options=}")
        return self.trace.call(function, *args)

    def __bool__(self) -> NoReturn:
        raise TypeError("a symbol of a trace was asked for its truth")

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("a symbol of a trace was asked for its elements")

    def __neg__(self) -> Any:
        return self.trace.call(np.negative, self)

    def __abs__(self) -> Any:
        return self.trace.call(np.absolute, self)

    def __invert__(self) -> Any:
        return self.trace.call(np.invert, self)

    __getitem__ = _operator(operator.getitem)
    __add__, __radd__ = _operator(np.add), _reflected(np.add)
    __sub__, __rsub__ = _operator(np.subtract), _reflected(np.subtract)
    __mul__, __rmul__ = _operator(np.multiply), _reflected(np.multiply)
    __truediv__, __rtruediv__ = _operator(np.divide), _reflected(np.divide)
    __floordiv__, __rfloordiv__ = _operator(np.floor_divide), _reflected(np.floor_divide)
    __mod__, __rmod__ = _operator(np.remainder), _reflected(np.remainder)
    __and__, __rand__ = _operator(np.bitwise_and), _reflected(np.bitwise_and)
    __or__, __ror__ = _operator(np.bitwise_or), _reflected(np.bitwise_or)
    __lt__, __le__ = _operator(np.less), _operator(np.less_equal)
    __gt__, __ge__ = _operator(np.greater), _operator(np.greater_equal)
    __eq__, __ne__ = _operator(np.equal), _operator(np.not_equal)


def recorded(function: Op) -> Op:
    """A function of arrays and hashable values that a trace has as a single operation.

    It must give the same for the same arguments, and leave its arguments as they are.
    """

    @wraps(function)
    def call(*args: Any) -> Any:
        for a in args:
            if type(a) is Symbol:
                return a.trace.call(function, *args)
        return function(*args)

    return call


class Trace:
    """The operations so far; inputs, constants and results have places, in the order in which they came."""

    def __init__(self) -> None:
        self.inputs: list[int] = []
        self.constants: dict[int, Any] = {}
        self.operations: list[Operation] = []
        self.samples: list[Any] = []
        self._known: dict[Hashable, Any] = {}

    def input(self, sample: Any) -> Symbol:
        """The next argument of the program that is recorded."""
        self.inputs.append(self._place(sample))
        return Symbol(self, self.inputs[-1], sample)

    def call(self, op: Op, *args: Any) -> Any:
        """The result of an operation on symbols and constants."""
        places = tuple([a.place if type(a) is Symbol else self._constant(a) for a in args])
        key = (op, places[::-1]) if op in _COMMUTE and places[0] > places[1] else (op, places)
        known = self._known.get(key)
        if known is None:
            samples = self.samples
            sample = op(*[samples[p] for p in places])
            known = self._unchanged(op, args, sample)
            if known is None:
                known = Symbol(self, len(samples), sample)
                samples.append(sample)
                self.operations.append((op, places, known.place))
            self._known[key] = known
        return known

    def _unchanged(self, op: Op, args: Sequence[Any], result: Any) -> Symbol | None:
        """The argument that the operation gives back as it is."""
        given: Sequence[Any] = ()
        if op is np.where and isinstance(args[0], bool | np.bool_):
            given = args[1:2] if args[0] else args[2:]
        elif op in _NEUTRAL and (op is not np.add or result.dtype.kind in "iu"):
            given = [a for a, b in (args, args[::-1]) if np.isscalar(b) and b == _NEUTRAL[op]]
        same = [a for a in given if type(a) is Symbol and a.sample.dtype == result.dtype]
        return next((a for a in same if a.sample.shape == result.shape), None)

    def _place(self, sample: Any) -> int:
        self.samples.append(sample)
        return len(self.samples) - 1

    def _constant(self, value: Any) -> int:
        """The place of a constant.  Equal ones that are not the same, as 1, 1.0 and True, have different places."""
        if isinstance(value, np.ndarray | np.generic) and not value.ndim:
            value = value.item()
        if isinstance(value, np.ndarray):
            if value.shape[-1] != 1:
                raise TypeError(f"lanes that are no symbol have no place on a trace, got shape={value.shape}")
            key: Hashable = value.dtype, value.shape, value.tobytes()
        else:
            plain = type(value) is int or (type(value) is float and value != 0)
            key = type(value), value if plain else repr(value)
        place: int | None = self._known.get(key)
        if place is None:
            place = self._known[key] = self._place(value)
            self.constants[place] = value
        return place


class CompiledTrace:
    """What `outputs` need of a trace.  Registers whose values are no longer needed are used again."""

    def __init__(self, trace: Trace, outputs: Sequence[Symbol]) -> None:
        last = _last_uses(trace, [o.place for o in outputs])
        register = {place: k for k, place in enumerate(trace.inputs)}
        constants: dict[tuple[int, str], int] = {}
        self._start: list[Any] = [None] * len(register)
        self._steps: list[Step] = []
        free: list[int] = []
        for i, (op, places, result) in enumerate(trace.operations):
            if result not in last:
                continue
            args = [register.get(p, -1) for p in places]
            done = [k for k, p in zip(args, places, strict=True) if k >= 0 and last[p] == i]
            if -1 in args:
                kind = _kind(trace, op, places)
                for j, p in enumerate(places):
                    if args[j] < 0:
                        args[j] = constants.setdefault((p, kind), len(self._start))
                        if args[j] == len(self._start):
                            self._start.append(_stored(trace.constants[p], kind))
            if not free:
                free.append(len(self._start))
                self._start.append(None)
            out = register[result] = free.pop()
            self._steps.append(_step(op, args, out))
            free += done if len(done) < 2 else {*done}
        self._outputs = [register[o.place] for o in outputs]
        self._inputs = len(trace.inputs)

    def __call__(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs for these inputs.  Raises ValueError for another number of them than were recorded."""
        if len(inputs) != self._inputs:
            raise ValueError(f"program of a trace: {self._inputs} inputs are needed, got {len(inputs)}")
        r = self._start.copy()
        r[: self._inputs] = inputs
        for op, a, b, rest, out in self._steps:
            if b >= 0:
                r[out] = op(r[a], r[b])
            elif a >= 0:
                r[out] = op(r[a])
            else:
                r[out] = op(*[r[k] for k in rest])
        return [r[k] for k in self._outputs]


def _kind(trace: Trace, op: Op, places: Sequence[int]) -> str:
    """The letter of the type that all arrays have that go into an operation of NumPy; "" when they differ."""
    kinds = (
        {trace.samples[p].dtype.char for p in places if p not in trace.constants} if isinstance(op, np.ufunc) else ()
    )
    return kinds.pop() if len(kinds) == 1 else ""


def _stored(value: Any, kind: str) -> Any:
    """A constant as an operation gets it: beside arrays of floats or ints as an array, which NumPy reads faster."""
    fits = {"d": (int, float), "l": (int,)}.get(kind, ())
    return np.array(value, kind) if type(value) in fits else value


def _step(op: Op, args: list[int], out: int) -> Step:
    if len(args) == 2:
        return op, args[0], args[1], (), out
    return (op, args[0], -1, (), out) if len(args) == 1 else (op, -1, -1, tuple(args), out)


def _last_uses(trace: Trace, wanted: Sequence[int]) -> dict[int, int]:
    """The last operation that reads each place that is needed; one past the end for what is wanted or an input."""
    last = dict.fromkeys((*trace.inputs, *wanted), len(trace.operations))
    for i in reversed(range(len(trace.operations))):
        _, places, result = trace.operations[i]
        if result in last:
            for p in places:
                last.setdefault(p, i)
    return last


# ----------------------------------------------------------------------------------------------- numbers of populations


REMEMBERED = 64
COMES_AGAIN = 1
"""How often a variant was seen before it is recorded."""

Meaning = TypeVar("Meaning")
Function = Callable[[Programs, HardwareParams], tuple[Sequence[Any], Meaning]]
"""Gives lanes (no plain numbers), and what they mean, which is the same for all rows of a variant."""


@dataclass(frozen=True)
class ReplayedTrace(Generic[Meaning]):
    """A recording, with the columns of the rows that it is replayed for."""

    program: CompiledTrace
    meaning: Meaning
    columns: list[Any]

    def lanes(self, chunk: slice) -> list[Any]:
        """The lanes `chunk` of what the function gives."""
        return self.program([chunk.stop - chunk.start, *[column[chunk] for column in self.columns]])


class Replayer(Generic[Meaning]):
    """Remembers the recordings of a function for the variants seen last."""

    def __init__(self, function: Function[Meaning]) -> None:
        self._function = function
        self._seen: dict[Hashable, tuple[CompiledTrace, Meaning] | int] = {}  # the recording, or how often it came

    def replayed(self, programs: Programs, hardware: HardwareParams) -> ReplayedTrace[Meaning] | None:
        """The recording for the variant of these programs.

        None where the function itself must do: programs that are no rows, none at all, or a variant seen first; a
        single program is no reason to record.
        """
        if not isinstance(programs, RowPrograms) or programs.n < 1:
            return None
        origin = programs.origin
        key = origin.variant, origin.target, origin.hardware, hardware
        found = self._seen.pop(key, 0)
        if programs.n == 1 and found == 0:
            return None
        if isinstance(found, int) and programs.n > 1:
            found = self._record(origin, hardware) if found >= COMES_AGAIN else found + 1
        self._seen[key] = found
        if len(self._seen) > REMEMBERED:
            self._seen.pop(next(iter(self._seen)), None)
        return None if isinstance(found, int) else ReplayedTrace(*found, origin.columns)

    def _record(self, origin: Origin, hardware: HardwareParams) -> tuple[CompiledTrace, Meaning]:
        trace, programs = _symbolic(origin.variant, origin.target, origin.hardware)
        lanes, meaning = self._function(programs, hardware)
        return CompiledTrace(trace, lanes), meaning


@lru_cache(maxsize=REMEMBERED)
def _symbolic(variant: Variant, target: Target, hardware: HardwareParams) -> tuple[Trace, Programs]:
    """Rows of a variant as symbols, and the trace that they are written to.

    All functions that are recorded for the variant share it, so that bounds are inferred once for all of them.
    """
    trace = Trace()
    n = trace.input(1)
    columns = [trace.input(np.ones(1, np.int64)) for _ in range(variant.space.width)]
    return trace, Origin(variant, columns, target, hardware).programs(n)
