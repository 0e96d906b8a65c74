"""A pass is a named function from graphs to graphs of the same meaning; passes run one after another.

    simplify = Sequential([SimplifyInference(), FoldConstant(), FoldScaleAxis()])
    with PassContext(opt_level=3):
        module = simplify(module)

A pass that is called by itself always runs; in a sequence the current `PassContext` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar, overload

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.module import IRModule
from ..ir.nodes import Function
from ..ir.visit import in_loops, operators_of
from .context import PassContext

Maker = TypeVar("Maker", bound=Callable[..., "Pass"])
ACTS_ON: dict[Callable[..., Pass], frozenset[str]] = {}
"""The operators that a pass acts on, by the function that makes it."""


@dataclass(frozen=True)
class Pass:
    """`run` gives a function of the same parameters and result type, with its meaning unchanged.

    In a sequence a pass runs from optimisation level `opt_level` on, and the passes of `required` run before it.  The
    functions of loops are rewritten, too, before what is around them; one `of_passes` leaves that to these.
    """

    name: str
    opt_level: int
    required: tuple[Pass, ...]
    run: Callable[[Function], Function]
    of_passes: bool = False

    @overload
    def __call__(self, graph: IRModule) -> IRModule: ...
    @overload
    def __call__(self, graph: Function) -> Function: ...
    def __call__(self, graph: IRModule | Function) -> IRModule | Function:
        """Apply the pass to a function, or to all functions of a module; fused groups stay as they are.

        Raises GraphError when the pass changes the type of the result or the parameters.
        """
        law = "works on an IRModule or a Function"
        require(isinstance(graph, IRModule | Function), GraphError, f"pass {self.name}", law, got=type(graph).__name__)
        if isinstance(graph, IRModule):
            return IRModule({name: self(function) for name, function in graph.functions.items()})
        if graph.attrs.get("primitive"):
            return graph
        made = self.run(graph if self.of_passes else in_loops(graph, self))
        same = made.params == graph.params and made.body.type == graph.body.type
        law = f"a pass keeps the parameters and the result type {graph.body.type}"
        require(same, GraphError, f"pass {self.name}", law, params=made.params, result=made.body.type)
        return made


def Sequential(  # a class in TVM, and written like one
    passes: Sequence[Pass], opt_level: int = 0, name: str = "sequential", required: tuple[Pass, ...] = ()
) -> Pass:
    """One pass made of several: each runs if the current context enables it, after the passes that it requires."""
    ok = isinstance(passes, Sequence) and all([isinstance(one, Pass) for one in passes])
    law = "a list of passes is needed, such as [relay.transform.FoldConstant()]"
    require(ok, GraphError, f"pass {name}", law, got=passes)
    chain = tuple(passes)

    def run(function: Function) -> Function:
        context = PassContext.current()
        for each in chain:
            if context.enabled(each.name, each.opt_level):
                for before in each.required:
                    function = before(function)
                function = each(function)
        return function

    return Pass(name, opt_level, required, run, of_passes=True)


def acts_on(*operators: str) -> Callable[[Maker], Maker]:
    """Say of a function that makes a pass which operators this acts on: it leaves graphs without them as they are."""

    def named(make: Maker) -> Maker:
        ACTS_ON[make] = frozenset(operators)
        return make

    return named


def where_needed(make: Callable[..., Pass], *args: object) -> Pass:
    """The pass that `make` gives, made and run only where one of the operators is there that it acts on."""

    def run(function: Function) -> Function:
        needed = not ACTS_ON[make].isdisjoint(operators_of(function))
        return Sequential([make(*args)])(function) if needed else function

    return Pass(f"where {make.__name__} is needed", 0, (), run, of_passes=True)


def InferType() -> Pass:
    """Nothing to do: every node knows its type from when it was made.  For programs that name it in a sequence."""
    return Pass("InferType", 0, (), _same)


def RemoveUnusedFunctions() -> Pass:
    """Nothing to do: the functions of a module do not call each other.  For programs that name it in a sequence."""
    return Pass("RemoveUnusedFunctions", 1, (), _same)


def _same(function: Function) -> Function:
    return function
