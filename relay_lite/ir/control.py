"""Nodes that run functions of their own: loops, and branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from te_lite.errors import require

from .errors import GraphError
from .nodes import Control, Expr, Function, tensor_type
from .types import TensorType, TupleType, Type

UNBOUNDED = 4
"""The steps of a loop without a bound that are written out: states alternate between two places, from the first on."""


@dataclass(frozen=True, eq=False)
class Loop(Control):
    """A function called `steps` times, each call after the one before.

    Of its parameters the first `sliced` are slices of the first arguments along their first axis, a slice a step; the
    next `states` are states, whose arguments are those before the first step; what the others are given stays.  It
    gives the new states, then what each step adds to results that are as long as all steps together.  A loop that runs
    `backwards` takes the slices from the last to the first, and puts results where it takes them.

    An `unbounded` loop goes on until its first state, a bool, is false, and then for any number of steps, which must
    change no state; `steps` are those that plans write out, of which they repeat the last two.

    `turns` may say of every sliced argument into how many slices it is cut, and how many steps take a slice before the
    next one is taken; after the last one comes the first.

    Raises GraphError for parts that do not fit each other.
    """

    function: Function
    args: tuple[Expr, ...]
    steps: int
    sliced: int
    states: int
    backwards: bool = False
    turns: tuple[tuple[int, int], ...] = ()
    unbounded: bool = False

    def __post_init__(self) -> None:
        params, results = self.function.params, self._results()
        require(self.steps >= 1, GraphError, "loop", "at least one step is needed", steps=self.steps)
        known = self.sliced >= 0 and 0 <= self.states <= len(results) and self.sliced + self.states <= len(params)
        require(known and len(self.args) == len(params), GraphError, "loop", f"there are {len(params)} parameters",
                sliced=self.sliced, states=self.states, arguments=len(self.args))  # fmt: skip
        law = "turns are slices and steps of a slice, which fill all steps"
        even = all(min(turn) > 0 and self.steps % (turn[0] * turn[1]) == 0 for turn in self.turns)
        require(len(self.turns) in (0, self.sliced) and even, GraphError, "loop", law, turns=self.turns)
        wanted = [_long(p.var_type, self.slices(k)) if k < self.sliced else p.var_type for k, p in enumerate(params)]
        found = [tensor_type(a) for a in self.args]
        law = f"arguments are {', '.join(map(str, wanted))}"
        require(found == wanted, GraphError, "loop", law, found=", ".join(map(str, found)))
        before = [p.type for p in params[self.sliced : self.sliced + self.states]]
        law = f"the new states are {', '.join(map(str, before))}"
        after = list(results[: self.states])
        require(after == before, GraphError, "loop", law, found=", ".join(map(str, after)))
        open_end = self.sliced == 0 and len(results) == self.states and self.steps == UNBOUNDED
        law = "one that is unbounded has states alone, the first a bool of shape ()"
        ok = not self.unbounded or (open_end and before[:1] == [TensorType((), "bool")])
        require(ok, GraphError, "loop", law, states=", ".join(map(str, before)), sliced=self.sliced)

    @property
    def given(self) -> tuple[Expr, ...]:
        return self.args

    @property
    def functions(self) -> tuple[Function, ...]:
        return (self.function,)

    def with_functions(self, functions: Sequence[Function], args: Sequence[Expr] | None = None) -> Loop:
        given = self.args if args is None else tuple(args)
        same = given is self.args and functions[0] is self.function
        return self if same else replace(self, function=functions[0], args=given)

    def _results(self) -> tuple[TensorType, ...]:
        found = self.function.body.type
        require(isinstance(found, TupleType), GraphError, "loop", "its function must give a tuple", type=found)
        assert isinstance(found, TupleType)
        return found.fields

    @cached_property
    def type(self) -> Type:
        results = self._results()
        return TupleType((*results[: self.states], *[_long(t, self.steps) for t in results[self.states :]]))

    def slice_of(self, step: int) -> int:
        """The number of the slice that a step gives."""
        return self.steps - 1 - step if self.backwards else step

    def slices(self, k: int) -> int:
        """Into how many slices an argument is cut."""
        return self.turns[k][0] if self.turns else self.steps

    def slice_taken(self, k: int, step: int) -> int:
        """The number of the slice of an argument that a step takes."""
        count, every = self.turns[k] if self.turns else (self.steps, 1)
        return self.slice_of(step) // every % count


def _long(one: TensorType, steps: int) -> TensorType:
    """The type of so many slices behind each other."""
    require(len(one.shape) > 0, GraphError, "loop", "a slice must have an axis", type=one)
    return TensorType((steps * one.shape[0], *one.shape[1:]), one.dtype)


@dataclass(frozen=True, eq=False)
class Branch(Control):
    """One of two functions, which is known only when the network runs.

    The first argument says which: a bool of shape (), true for `then`.  Both take all others and give tuples of the
    same types; the one that is not taken has no effect.  Raises GraphError for parts that do not fit each other.
    """

    then: Function
    otherwise: Function
    args: tuple[Expr, ...]

    def __post_init__(self) -> None:
        kinds = [tensor_type(a) for a in self.args]
        law = "the first argument must be a bool of shape ()"
        require(kinds[:1] == [TensorType((), "bool")], GraphError, "branch", law, arguments=", ".join(map(str, kinds)))
        for function in self.functions:
            wanted = [p.var_type for p in function.params]
            law = f"arguments behind the first are {', '.join(map(str, wanted))}"
            require(kinds[1:] == wanted, GraphError, "branch", law, found=", ".join(map(str, kinds[1:])))
        then, otherwise = (f.body.type for f in self.functions)
        law = "both functions must give a tuple of the same types"
        same = isinstance(then, TupleType) and then == otherwise
        require(same, GraphError, "branch", law, then=str(then), otherwise=str(otherwise))

    @property
    def type(self) -> Type:
        return self.then.body.type

    @property
    def given(self) -> tuple[Expr, ...]:
        return self.args

    @property
    def functions(self) -> tuple[Function, ...]:
        return self.then, self.otherwise

    def with_functions(self, functions: Sequence[Function], args: Sequence[Expr] | None = None) -> Branch:
        then, otherwise = functions
        given = self.args if args is None else tuple(args)
        same = given is self.args and then is self.then and otherwise is self.otherwise
        return self if same else Branch(then, otherwise, given)
