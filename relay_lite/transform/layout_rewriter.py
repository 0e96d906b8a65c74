"""The engine behind `ConvertLayout` and `AlterOpLayout`: one sweep that lets layouts flow through a graph.

Every tensor of the new graph carries two layouts: what its axes meant in the old graph, and what they mean now.  Where
an operator wants another order than its input has, a `layout_transform` is put in between, once a tensor and order.
Operators without a layout rule, and the results of the function, get what they had before.
A smaller operand of a broadcasting operator is brought to full rank on the way, by `expand_dims` at the front.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..ir.make import call
from ..ir.nodes import Call, Control, Expr, Function, FunctionCall, Tuple, TupleGetItem, children, rebuild
from ..ir.types import TupleType
from ..ir.visit import post_order, with_body
from .layout_rules import Labels, LayoutName, LayoutRule, layout_rule

Demand: TypeAlias = Callable[[Call], Mapping[int, str]]
Finish: TypeAlias = Callable[[Call], Expr]


@dataclass(frozen=True)
class Placed:
    """A tensor of the new graph, with its layout in the old graph and its layout now; both None when unknown."""

    value: Expr
    old: LayoutName = None
    new: LayoutName = None


@dataclass(frozen=True)
class Several:
    """The tensors of a tuple, and the tuple itself."""

    fields: tuple[Placed, ...]
    whole: Expr


def nothing_demanded(node: Call) -> Mapping[int, str]:
    """No operator is told which layouts to take."""
    return {}


def unchanged(node: Call) -> Expr:
    """The call stays as it is."""
    return node


def rewrite_layouts(function: Function, demand: Demand = nothing_demanded, finish: Finish = unchanged) -> Function:
    """Let layouts flow through a function.

    `demand(call)` names layouts that inputs of a call of the old graph must have in the new one, by their number;
    `finish(call)` may put something of the same type in place of a call whose inputs are in order.
    """
    return _Rewriter(demand, finish).run(function)


class _Rewriter:
    def __init__(self, demand: Demand, finish: Finish) -> None:
        self.demand = demand
        self.finish = finish
        self.made: dict[Expr, Placed | Several] = {}
        self.transformed: dict[tuple[Expr, str, str], Expr] = {}

    def run(self, function: Function) -> Function:
        for node in post_order(function.body):
            self.made[node] = self._place(node)
        return with_body(function, self._as_before(self.made[function.body]))

    # ------------------------------------------------------------------------------------------------ nodes

    def _place(self, node: Expr) -> Placed | Several:
        match node:
            case Call():
                return self._call(node)
            case Tuple(fields=fields):
                placed = [self._tensor(f) for f in fields]
                return Several(tuple(placed), rebuild(node, [p.value for p in placed]))
            case TupleGetItem(tuple_value=value, index=index):
                several = self.made[value]
                assert isinstance(several, Several)
                field = several.fields[index]
                kept = several.whole is value and isinstance(value, Call | FunctionCall | Control)
                return Placed(node, field.old, field.new) if kept else field
            case FunctionCall() | Control():
                return self._unknown(rebuild(node, [self._as_before(self.made[c]) for c in children(node)]))
            case _:
                return self._unknown(node)

    def _tensor(self, node: Expr) -> Placed:
        placed = self.made[node]
        assert isinstance(placed, Placed)
        return placed

    def _unknown(self, value: Expr) -> Placed | Several:
        return self._results(value, None, None)

    def _results(
        self, value: Expr, old: Sequence[LayoutName] | None, new: Sequence[LayoutName] | None
    ) -> Placed | Several:
        """The results of a node, one layout each; None when nothing is known of any."""
        if not isinstance(value.type, TupleType):
            return Placed(value, old[0] if old else None, new[0] if new else None)
        count = len(value.type.fields)
        old, new = old or [None] * count, new or [None] * count
        fields = [Placed(TupleGetItem(value, k), old[k], new[k]) for k in range(count)]
        return Several(tuple(fields), value)

    def _call(self, node: Call) -> Placed | Several:
        inputs = [p for a in node.args for p in self._flat(self.made[a])]
        rule = layout_rule(node.op, len(inputs))
        shapes = [p.value.shape if p.old == p.new else _restored(p) for p in inputs]
        labels = rule.read(node.attrs, shapes, tuple(p.old for p in inputs)) if rule else None
        if rule is None or labels is None:
            return self._unknown(rebuild(node, [self._as_before(self.made[a]) for a in node.args]))
        agreed = [self._called(p, layout) for p, layout in zip(inputs, labels.inputs, strict=True)]
        wanted = self._wanted(node, rule, labels, agreed)
        moved = rule.move(node.attrs, shapes, labels, wanted)
        values = [self._transform(p.value, p.new, to) for p, to in zip(agreed, moved.inputs, strict=True)]
        done = self.finish(self._with(node, node.attrs if wanted == labels.inputs else moved.attrs, values))
        return self._results(done, labels.outputs, moved.outputs)

    def _flat(self, placed: Placed | Several) -> tuple[Placed, ...]:
        return placed.fields if isinstance(placed, Several) else (placed,)

    def _wanted(
        self, node: Call, rule: LayoutRule, labels: Labels, inputs: Sequence[Placed]
    ) -> tuple[LayoutName, ...]:  # fmt: skip
        """Which layouts the inputs are wanted in: as demanded; else as they come, or as they were."""
        wanted = [p.new for p in inputs] if rule.follows else list(labels.inputs)
        for k, layout in self.demand(node).items():
            wanted[k] = layout
        return tuple(wanted)

    def _with(self, node: Call, attrs: Mapping[str, Any], values: Sequence[Expr]) -> Call:
        """The call on new arguments, in tuples where it had tuples; the node itself if nothing changed."""
        args: list[Expr] = []
        rest = iter(values)
        for arg in node.args:
            made = self.made[arg]
            if isinstance(made, Placed):
                args.append(next(rest))
                continue
            fields = [next(rest) for _ in made.fields]
            same = all(f is p.value for f, p in zip(fields, made.fields, strict=True))
            args.append(made.whole if same else Tuple(tuple(fields)))
        same_args = all(a is b for a, b in zip(args, node.args, strict=True))
        return node if same_args and attrs == node.attrs else Call(node.op, tuple(args), attrs)

    # ------------------------------------------------------------------------------------- between layouts

    def _called(self, placed: Placed, layout: LayoutName) -> Placed:
        """The tensor by the letters that its reader uses; when its producer used others it is put back in order."""
        if placed.old == layout:
            return placed
        return Placed(self._restore(placed), layout, layout)

    def _restore(self, placed: Placed) -> Expr:
        return self._transform(placed.value, placed.new, placed.old)

    def _as_before(self, placed: Placed | Several) -> Expr:
        """What the old graph had here."""
        if isinstance(placed, Placed):
            return self._restore(placed)
        if all(p.old == p.new for p in placed.fields):
            return placed.whole
        return Tuple(tuple([self._restore(p) for p in placed.fields]))

    def _transform(self, value: Expr, src: LayoutName, dst: LayoutName) -> Expr:
        """`value` in layout `dst`; letters that it lacks become axes of extent 1 at the front."""
        if src == dst or src is None or dst is None:
            return value
        key = (value, src, dst)
        if key not in self.transformed:
            missing = "".join(letter for letter in dst if letter not in src)
            if missing:
                value = call("expand_dims", value, axis=0, num_newaxis=len(missing))
            same = missing + src == dst
            self.transformed[key] = (
                value if same else call("layout_transform", value, src_layout=missing + src, dst_layout=dst)
            )
        return self.transformed[key]


def _restored(placed: Placed) -> tuple[int, ...]:
    """The shape of a tensor in the order of the old graph."""
    assert placed.old is not None and placed.new is not None
    extents = dict(zip(placed.new, placed.value.shape, strict=True))
    return tuple(extents[letter] for letter in placed.old)
