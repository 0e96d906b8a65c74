"""A pass is a named function from graphs to graphs of the same meaning; passes run one after another.

    simplify = Sequential([SimplifyInference(), FoldConstant(), FoldScaleAxis()])
    with PassContext(opt_level=3):
        module = simplify(module)

A pass that is called by itself always runs; in a sequence the current `PassContext` decides.  A context is
a value; entering one makes it the current one of this thread (or task) until it is left.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar, overload

from te_lite.errors import require

from ..ir.errors import GraphError
from ..ir.module import IRModule
from ..ir.nodes import Function
from ..ir.visit import in_loops, operators_of

CONFIG_KEYS: dict[str, type] = {"relay.backend.use_auto_scheduler": bool, "relay.FuseOps.max_depth": int}


def register_config(key: str, kind: type) -> None:
    """Make a key of `PassContext.config` known, with the type of its value.  Raises GraphError when it is taken."""
    require(CONFIG_KEYS.get(key, kind) is kind, GraphError, "pass option", "the key has another type", key=key)
    CONFIG_KEYS[key] = kind


@dataclass(frozen=True)
class PassContext:
    """Settings of passes.  `config` is checked: GraphError for an unknown key or a value of another type.

    A pass is enabled when `opt_level` reaches its own or `required_pass` names it, and `disabled_pass` does not.
    """

    opt_level: int = 2
    config: Mapping[str, Any] | None = field(default=None, hash=False)
    required_pass: Collection[str] = ()
    disabled_pass: Collection[str] = ()

    def __post_init__(self) -> None:
        level = isinstance(self.opt_level, int)
        require(level, GraphError, "pass context", "opt_level is a whole number, usually 3", got=self.opt_level)
        options = dict(self.config or {})
        for key, value in options.items():
            require(key in CONFIG_KEYS, GraphError, "pass option", f"keys are {', '.join(CONFIG_KEYS)}", key=key)
            kind = CONFIG_KEYS[key]
            right = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
            require(right, GraphError, f"pass option {key}", f"a value of type {kind.__name__} is needed", got=value)
        for names in (self.required_pass, self.disabled_pass):
            require(not isinstance(names, str), GraphError, "pass context", "a list of names is needed", got=names)
        object.__setattr__(self, "config", options)
        object.__setattr__(self, "required_pass", frozenset(self.required_pass or ()))
        object.__setattr__(self, "disabled_pass", frozenset(self.disabled_pass or ()))

    @staticmethod
    def current() -> PassContext:
        """The innermost context that is entered, or the default one."""
        entered = _ENTERED.get()
        return entered[-1] if entered else DEFAULT

    def enabled(self, name: str, opt_level: int) -> bool:
        """Whether the pass `name` of level `opt_level` runs."""
        return name not in self.disabled_pass and (name in self.required_pass or self.opt_level >= opt_level)

    def option(self, key: str, default: Any) -> Any:
        """The value of an option, or `default` when it is not set.  Raises GraphError for an unknown key."""
        require(key in CONFIG_KEYS, GraphError, "pass option", f"keys are {', '.join(CONFIG_KEYS)}", key=key)
        return (self.config or {}).get(key, default)

    def __enter__(self) -> PassContext:
        _ENTERED.set((*_ENTERED.get(), self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _ENTERED.set(_ENTERED.get()[:-1])


DEFAULT = PassContext()
_ENTERED: ContextVar[tuple[PassContext, ...]] = ContextVar("entered pass contexts", default=())


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
