"""Templates and tasks: a template is a function with knobs, a task is a template with arguments and a target.

    @template("matmul")
    def matmul(n):
        cfg = get_config()
        cfg.define_split("tile_x", n, num_outputs=2)
        ...
        return schedule, [A, B, C]

    task = create("matmul", args=(512,), target="c")

A workload is the name with the arguments, made of plain values: a tensor is written ("TENSOR", shape, dtype).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property, update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, overload

import te_lite as te
from te_lite import ComputeDAG, Tensor
from te_lite.errors import require

from ..core.target.target import Target
from .config import ConfigEntity
from .dispatch import ApplyConfig, DispatchContext
from .errors import TemplateError
from .space import ConfigSpace

Template = Callable[..., Any]
P = ParamSpec("P")
R = TypeVar("R")
Workload = tuple[Any, ...]
_TEMPLATES: dict[str, Template] = {}
_target: ContextVar[Target | None] = ContextVar("template_target", default=None)


class Dispatched(Generic[P, R]):
    """A template as a function: called with arguments by position, it runs with what the current context knows."""

    def __init__(self, task_name: str, func: Callable[P, R]) -> None:
        self.task_name = task_name
        self._func = func
        update_wrapper(self, func)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs:
            raise TypeError(f"{self.task_name}: arguments are given by position, got {', '.join(kwargs)}")
        config = DispatchContext.current.query(current_target(), args_to_workload(args, self.task_name))
        with ApplyConfig(config):
            return self._func(*args, **kwargs)


@overload
def template(task_name: str, func: None = None) -> Callable[[Callable[P, R]], Dispatched[P, R]]: ...


@overload
def template(task_name: str, func: Callable[P, R]) -> Dispatched[P, R]: ...


def template(task_name: str, func: Template | None = None) -> Any:
    """A decorator: the function is the template `task_name` from now on, and takes the place of an older one.

    The function reads its configuration by `get_config()`; called outside a task it gets what the current dispatch
    context knows for its workload (dispatch.py).
    """

    def register(f: Template) -> Template:
        _TEMPLATES[task_name] = f
        return Dispatched(task_name, f)

    return register if func is None else register(func)


def current_target() -> Target | None:
    """The target of the task that is being instantiated, or None."""
    return _target.get()


@contextmanager
def _on(target: Target) -> Iterator[None]:
    token = _target.set(target)
    try:
        yield
    finally:
        _target.reset(token)


# ---------------------------------------------------------------------------------------------------- arguments


def serialize_args(args: Sequence[Any]) -> Workload:
    """Arguments as plain values: tensors as ("TENSOR", shape, dtype), lists as tuples.

    Raises TemplateError for an argument that JSON cannot say.
    """
    return tuple([_plain(arg) for arg in args])


def _plain(arg: Any) -> Any:
    if isinstance(arg, Tensor):
        return ("TENSOR", tuple(arg.shape), arg.dtype)
    if isinstance(arg, list | tuple):
        return tuple([_plain(x) for x in arg])
    ok = arg is None or isinstance(arg, bool | int | float | str)
    require(ok, TemplateError, "template", "arguments are tensors, numbers, texts, None, or lists of them", got=arg)
    return arg


def deserialize_args(args: Sequence[Any]) -> list[Any]:
    """The arguments again, with placeholders for tensors: `arg0`, `arg1` and so on."""
    return [te.placeholder(a[1], a[2], f"arg{k}") if _is_tensor(a) else a for k, a in enumerate(args)]


def _is_tensor(arg: Any) -> bool:
    return isinstance(arg, tuple) and len(arg) == 3 and arg[0] == "TENSOR"


def args_to_workload(args: Sequence[Any], task_name: str) -> Workload:
    """What a context is asked for."""
    return (task_name, *serialize_args(args))


# -------------------------------------------------------------------------------------------------------- tasks


class Task:
    """A template with arguments on a target; the space is defined when it is asked for, by running the template once.

    Making one needs neither template nor target, so that records of unknown ones can be read.
    `desc` is what people call it.  Raises TemplateError for arguments that are no plain values.
    """

    def __init__(
        self, name: str, args: Sequence[Any], target: Target | str, target_host: Target | str | None = None,
        desc: str = "",
    ) -> None:  # fmt: skip
        self.name, self.desc = name, desc
        self.args = serialize_args(args)
        self.kwargs: dict[str, Any] = {}
        self.target_text = str(target)
        self.target_host = target_host
        if isinstance(target, Target):
            self.__dict__["target"] = target

    @cached_property
    def target(self) -> Target:
        """Raises TaskError when the text names no known target."""
        return Target(self.target_text)

    @property
    def workload(self) -> Workload:
        return (self.name, *self.args)

    @property
    def title(self) -> str:
        """The task for people: its description, or its template with the shapes and numbers that it was called with."""
        return self.desc or self.call

    @property
    def call(self) -> str:
        """The template with shapes and numbers: `matmul([64, 64], 8)`."""
        parts = [list(a[1]) if _is_tensor(a) else list(a) if isinstance(a, tuple) else a for a in self.args]
        return f"{self.name}({', '.join(map(str, parts))})"

    @property
    def func(self) -> Template:
        """The template.  Raises TemplateError when it is not registered."""
        known = ", ".join(_TEMPLATES) or "none"
        require(self.name in _TEMPLATES, TemplateError, "template", f"known ones are {known}", got=self.name)
        return _TEMPLATES[self.name]

    def _run(self, config: Any) -> Any:
        with _on(self.target), ApplyConfig(config):
            return self.func(*deserialize_args(self.args))

    @cached_property
    def _defined(self) -> tuple[ConfigSpace, float, str]:
        """The space, the operations of one run, and the text of the computation."""
        space = ConfigSpace()
        dag = _computation(self._run(space))
        flop = space.flop or (0.0 if dag is None else max(0.0, dag.flop_ct))
        law = "no operations can be counted, so the template must call add_flop"
        require(flop > 0, TemplateError, f"template {self.name}", law)
        return space, flop, "" if dag is None else str(dag)

    @property
    def config_space(self) -> ConfigSpace:
        return self._defined[0]

    @property
    def flop(self) -> float:
        """Operations of one run, for GFLOPS."""
        return self._defined[1]

    @property
    def computation_text(self) -> str:
        """What is computed, as text; empty where the template does not give its tensors."""
        return self._defined[2]

    def instantiate(self, config: ConfigEntity) -> Any:
        """What the template returns for a configuration: `(schedule, tensors)`.

        Raises InstantiationError with the reason when the template refuses it.
        """
        return self._run(config)

    def __repr__(self) -> str:
        return f"Task(func_name={self.name}, args={self.args}, kwargs={{}}, workload={self.workload})"


def create(
    task_name: str | Template, args: Sequence[Any], target: Target | str, target_host: Target | str | None = None,
    desc: str = "",
) -> Task:  # fmt: skip
    """The task of a template, given by name or as the decorated function; its space is defined at once.

    Raises TemplateError for an unknown template, or one that shows no operations and does not call `add_flop`.
    """
    name = task_name.task_name if isinstance(task_name, Dispatched) else task_name if isinstance(task_name, str) else ""
    require(name, TemplateError, "create", "a template or its name is needed", got=task_name)
    task = Task(name, args, target, target_host, desc)
    require(task.config_space.space_map, TemplateError, f"template {name}", "the template defines no knob")
    return task


def _computation(made: Any) -> ComputeDAG | None:
    """The computation that a template returned, `(schedule, tensors)`; None where it returned something else."""
    tensors = made[1] if isinstance(made, tuple) and len(made) == 2 else ()
    if not isinstance(tensors, list | tuple) or not tensors or not all(isinstance(t, Tensor) for t in tensors):
        return None
    return ComputeDAG(tensors)
