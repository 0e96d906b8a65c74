"""How many elements an expression in a test has at least, as far as its text tells.

Zero stands for "nobody knows".  Names are followed to what they are assigned, once, in the function, in the module, or
in the module of ours that they are imported from.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path

from tests.architecture.imports import ROOT, parsed

Function = ast.FunctionDef | ast.AsyncFunctionDef
DEPTH = 12
"""Names are followed this far."""
SAME_LENGTH = {"list", "tuple", "sorted", "reversed", "enumerate", "iter", "permutations", "cycle", "repeat", "nditer"}
"""Calls whose result has as many elements as the first argument, or more."""
ALL_LONG = {"zip", "product"}
"""Calls whose result has elements if all arguments have."""
SOME_LONG = {"set", "frozenset", "dict", "fromkeys", "chain", "groupby", "Counter", "deque", "unique"}
"""Calls whose result has elements if one argument has."""
VIEWS = {"items", "keys", "values", "copy", "tolist", "split", "splitlines", "most_common", "flatten", "ravel"}
"""Methods whose result has elements if the object has."""


@dataclass(frozen=True)
class Module:
    """A file of ours, and what its names stand for."""

    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return parsed(self.path.read_text())

    @cached_property
    def values(self) -> Mapping[str, ast.expr]:
        return {name: value for name, value in bindings(self.tree.body).items() if value is not None}

    @cached_property
    def functions(self) -> Mapping[str, Function]:
        return {node.name: node for node in self.tree.body if isinstance(node, Function)}

    @cached_property
    def classes(self) -> Mapping[str, ast.ClassDef]:
        return {node.name: node for node in self.tree.body if isinstance(node, ast.ClassDef)}

    @cached_property
    def imported(self) -> Mapping[str, tuple[str, str]]:
        """The module and the name there; an empty name for a module itself."""
        found: dict[str, tuple[str, str]] = {}
        for node in statements(self.tree.body, into=True):
            match node:
                case ast.ImportFrom(module=module, names=names, level=level):
                    around = ".".join(self.path.relative_to(ROOT).parts[:-level]) if level else ""
                    full = ".".join(part for part in (around, module) if part)
                    found |= {a.asname or a.name: (full, a.name) for a in names}
                case ast.Import(names=names):
                    found |= {a.asname or a.name: (a.name, "") for a in names}
        return found

    def home(self, name: str, depth: int = DEPTH) -> tuple[Module, str] | None:
        """The module that defines what is called `name` here, and its name there."""
        if name in self.functions or name in self.classes or name in self.values:
            return self, name
        module, there = self.imported.get(name, ("", ""))
        if not module or not depth:
            return None
        inner = module_of(f"{module}.{there}") if there else None
        other = module_of(module)
        if inner is not None and (other is None or other.home(there, 0) is None):
            return inner, ""
        return (other.home(there, depth - 1) if there else (other, "")) if other is not None else None


@cache
def module_of(dotted: str) -> Module | None:
    """The file of a module of ours."""
    stem = ROOT.joinpath(*dotted.split("."))
    return next((Module(p) for p in (stem.with_suffix(".py"), stem / "__init__.py") if p.exists()), None)


def inside(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """All nodes of a block but those of functions and classes in it."""
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef | ast.Lambda):
            waiting.extend(ast.iter_child_nodes(node))


def statements(body: list[ast.stmt], into: bool = False) -> Iterator[ast.stmt]:
    """All statements of a block, in those of functions and classes if one goes `into` them."""
    for line in body:
        yield line
        if into or not isinstance(line, Function | ast.ClassDef):
            for part in ("body", "orelse", "finalbody", "handlers", "cases"):
                for inner in getattr(line, part, ()):
                    yield from statements([inner] if isinstance(inner, ast.stmt) else inner.body, into)


def bindings(body: list[ast.stmt]) -> dict[str, ast.expr | None]:
    """The names that a block binds, with the values of those that it assigns once."""
    values: dict[str, ast.expr] = {}
    stores: Counter[str] = Counter()
    for node in inside(body):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                stores[name] += 1
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    values |= dict(pairs(target, value))
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                values[name] = value
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                values[name] = value
    return {name: values.get(name) if count == 1 else None for name, count in stores.items()}


def pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """The names that an assignment binds, with their values, where a tuple is written out on both sides."""
    match target, value:
        case ast.Name(id=name), _:
            yield name, value
        case ((ast.Tuple(elts=names) | ast.List(elts=names)), (ast.Tuple(elts=parts) | ast.List(elts=parts))):
            if len(names) == len(parts):
                for name_, part in zip(names, parts, strict=True):
                    yield from pairs(name_, part)


def arguments(function: Function) -> list[ast.arg]:
    """The parameters of a function."""
    args = function.args
    return [*args.posonlyargs, *args.args, *args.kwonlyargs, *[a for a in (args.vararg, args.kwarg) if a is not None]]


@cache
def names_of(function: Function) -> dict[str, ast.expr | None]:
    """The names that a function binds, with the values of those that it assigns once."""
    return {a.arg: None for a in arguments(function)} | bindings(function.body)


@cache
def functions_in(function: Function) -> list[Function]:
    """The functions that are defined in a function."""
    return [line for line in statements(function.body) if isinstance(line, Function)]


def is_given(function: Function) -> bool:
    """Whether hypothesis draws the arguments."""
    return any("given(" in ast.unparse(decorator) for decorator in function.decorator_list)


@dataclass(frozen=True)
class Scope:
    """Where an expression stands."""

    module: Module
    values: Mapping[str, ast.expr | None] = field(default_factory=dict)
    """What the names of the function were assigned, once; None for its parameters, and others."""
    given: frozenset[str] = frozenset()
    """What hypothesis draws, an empty one sometimes, and others mostly."""
    depth: int = DEPTH

    def deeper(self) -> Scope:
        return replace(self, depth=self.depth - 1)

    def value(self, name: str) -> tuple[ast.expr, Scope] | None:
        """What a name was assigned, and where."""
        if name in self.values:
            own = self.values[name]
            return (own, self.deeper()) if own is not None else None
        home = self.module.home(name)
        if home is None or home[1] not in home[0].values:
            return None
        return home[0].values[home[1]], Scope(home[0], depth=self.depth - 1)

    def of(self, function: Function) -> Scope:
        """The scope of a function that stands here."""
        values = {**self.values, **names_of(function)}
        drawn = {arg.arg for arg in arguments(function)} if is_given(function) else set()
        return replace(self, values=values, given=(self.given - set(values)) | drawn)

    def called(self, func: ast.expr) -> tuple[Function | ast.ClassDef, Module] | None:
        """The function, or class, of ours that an expression names, and its module."""
        match func:
            case ast.Name(id=name):
                home = self.module.home(name)
            case ast.Attribute(value=ast.Name(id=base), attr=attr):
                home = self.module.home(base)
                home = home[0].home(attr) if home is not None and not home[1] else None
            case _:
                return None
        if home is None:
            return None
        module, name = home
        found = module.functions.get(name) or module.classes.get(name)
        return (found, module) if found is not None else None


def least(node: ast.expr, scope: Scope) -> int:
    """A number of elements that the value of an expression never falls short of."""
    if scope.depth <= 0:
        return 0
    match node:
        case ast.List(elts=elts) | ast.Tuple(elts=elts) | ast.Set(elts=elts):
            counts = [least(e.value, scope) if isinstance(e, ast.Starred) else 1 for e in elts]
            return min(1, sum(counts)) if isinstance(node, ast.Set) else sum(counts)
        case ast.Dict(keys=keys, values=values):
            return max([1 if key is not None else least(v, scope) for key, v in zip(keys, values, strict=True)] + [0])
        case ast.Constant(value=str() | bytes() as text):
            return len(text)
        case ast.JoinedStr(values=parts):
            return sum(least(part, scope) for part in parts)
        case ast.Name(id=name):
            return of_name(name, scope)
        case ast.Attribute(value=ast.Name(id=base), attr=attr):
            home = scope.module.home(base)
            return least(ast.Name(attr), Scope(home[0], depth=scope.depth - 1)) if home and not home[1] else 0
        case ast.IfExp(body=body, orelse=orelse):
            return min(least(body, scope), least(orelse, scope))
        case ast.NamedExpr(value=value):
            return least(value, scope)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return least(left, scope) + least(right, scope)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return max(least(left, scope), least(right, scope))
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return max(least(left, scope) * number(right, scope), least(right, scope) * number(left, scope))
        case ast.ListComp() | ast.GeneratorExp():
            return product(node.generators, scope)
        case ast.SetComp() | ast.DictComp():
            return min(1, product(node.generators, scope))
        case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=step)):
            return of_slice(least(value, scope), lower, upper, step, scope)
        case ast.Call():
            return of_call(node, scope)
    return 0


def of_name(name: str, scope: Scope) -> int:
    """The elements of what a name stands for: a value, or the members of an enumeration."""
    if name in scope.given:
        return 1
    found = scope.value(name)
    if found is not None:
        return least(*found)
    owner = scope.called(ast.Name(name))
    is_enum = owner is not None and isinstance(owner[0], ast.ClassDef)
    if is_enum and any("Enum" in ast.unparse(base) for base in owner[0].bases):  # type: ignore[index,union-attr]
        return sum(isinstance(line, ast.Assign) for line in owner[0].body)  # type: ignore[index]
    return 0


def product(generators: list[ast.comprehension], scope: Scope) -> int:
    """The elements that the `for`s of a comprehension give, none if one has an `if`."""
    count = 1
    for generator in generators:
        count *= 0 if generator.ifs else least(generator.iter, scope)
    return count


def of_slice(count: int, lower: ast.expr | None, upper: ast.expr | None, step: ast.expr | None, scope: Scope) -> int:
    """What a slice leaves of `count` elements."""
    first = 0 if lower is None else exact(lower, scope)
    last = None if upper is None else exact(upper, scope)
    if step is not None:
        return min(1, count) if lower is None and upper is None else 0
    if first is None or (upper is not None and last is None):
        return min(count, number(upper, scope)) if first == 0 and upper is not None else 0
    return len(range(count)[first:last]) if first >= 0 else min(count, -first) if upper is None else 0


def of_call(node: ast.Call, scope: Scope) -> int:
    """The elements of what a call returns."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    args = [a for a in node.args if not isinstance(a, ast.Starred)]
    if name == "nonempty":
        return 1
    if name in ("range", "arange", "ndindex", "permutation") and args:
        return of_range(args, scope) if name in ("range", "arange") else min(number(a, scope) for a in args)
    if name == "map" and len(args) >= 2:
        return min(least(a, scope) for a in args[1:])
    if name in SAME_LENGTH and args:
        return min(1, least(args[0], scope)) if len(args) > 1 else least(args[0], scope)
    if name in ("linspace", "count"):
        return 1
    if name == "integers":
        return number((args[2:] + [k.value for k in node.keywords if k.arg == "size"] + [ast.Constant(0)])[0], scope)
    if name == "combinations" and len(args) == 2:
        return int(least(args[0], scope) >= (exact(args[1], scope) or DEPTH))
    if name in ALL_LONG and (args or node.args):
        return min([least(a.value if isinstance(a, ast.Starred) else a, scope) for a in node.args])
    if name in SOME_LONG:
        return min(1, max([least(a, scope) for a in args] + [len([k for k in node.keywords if k.arg])]))
    if name == "some" and len(args) == 2:
        return min(least(a, scope) for a in args)
    if name in VIEWS and isinstance(node.func, ast.Attribute):
        return least(node.func.value, scope)
    found = scope.called(node.func)
    return of_function(found[0], Scope(found[1], depth=scope.depth - 1)) if found else 0


def of_range(args: list[ast.expr], scope: Scope) -> int:
    """The numbers of a range."""
    if len(args) == 1:
        return max(0, number(args[0], scope))
    ends = [exact(a, scope) for a in args]
    if ends[0] is not None and len(args) == 2:
        return max(0, number(args[1], scope) - ends[0])
    return len(range(*[e for e in ends if e is not None])) if None not in ends else 0


def of_function(function: Function | ast.ClassDef, scope: Scope) -> int:
    """The elements of what a function of ours returns, or yields, whatever its arguments are."""
    if isinstance(function, ast.ClassDef) or scope.depth <= 0:
        return 0
    inner = scope.of(function)
    nodes = list(inside(function.body))
    if any(isinstance(n, ast.Yield | ast.YieldFrom) for n in nodes):
        return sum(yields(line, inner) for line in function.body)
    returned = [n.value for n in nodes if isinstance(n, ast.Return)]
    return min([least(value, inner) if value is not None else 0 for value in returned] + ([] if returned else [0]))


def yields(line: ast.stmt, scope: Scope) -> int:
    """The elements that a statement of a generator is sure to yield."""
    match line:
        case ast.Expr(value=ast.Yield()):
            return 1
        case ast.Expr(value=ast.YieldFrom(value=value)):
            return least(value, scope)
        case ast.For(iter=iterable, body=body):
            return least(iterable, scope) * sum(yields(inner, scope) for inner in body)
        case ast.With(body=body):
            return sum(yields(inner, scope) for inner in body)
    return 0


def exact(node: ast.expr, scope: Scope) -> int | None:
    """The value of an expression, where it is a written number."""
    match node:
        case ast.Constant(value=int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
        case ast.Name(id=name) if scope.depth > 0 and (found := scope.value(name)) is not None:
            return exact(*found)
    return None


def number(node: ast.expr, scope: Scope) -> int:
    """A number that the value of an expression never falls short of."""
    if scope.depth <= 0:
        return 0
    known = exact(node, scope)
    if known is not None:
        return known
    match node:
        case ast.Name(id=name) if (found := scope.value(name)) is not None:
            return number(*found)
        case ast.Call(func=ast.Name(id="len"), args=[arg]):
            return least(arg, scope)
        case ast.Call(func=ast.Name(id="some" | "min"), args=args):
            return min(number(a, scope) for a in args)
        case ast.Call(func=ast.Name(id="max"), args=args) if len(args) > 1:
            return max(number(a, scope) for a in args)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return number(left, scope) + number(right, scope)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return number(left, scope) * number(right, scope)
        case ast.BinOp(left=left, op=ast.Sub(), right=right) if (taken := exact(right, scope)) is not None:
            return number(left, scope) - taken
    return 0
