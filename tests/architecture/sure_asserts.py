"""Which tests may end without having asserted anything: all of their asserts are in loops or branches that may not run.

An assertion is sure if every way through the test that does not raise or skip passes one.  A helper's counts where it
is called as a statement: who takes its result only prepares.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from pathlib import Path

from tests.architecture.imports import PACKAGES, ROOT
from tests.architecture.loop_lengths import Function, Module, Scope, functions_in, inside, least

CHECKS = ("raises", "warns", "fail", "raise_for_status")
SKIPS = ("skip", "xfail")
ADVICE = (
    "asserts only in loops and branches that may not run: go through nonempty(...) of tests/nonempty.py, "
    "assert how many there are, or that the case came up"
)


class Strength(IntEnum):
    """How surely something asserts."""

    NONE = 0
    MAYBE = 1
    SURE = 2
    ENDS = 3
    """It skips, or raises something: nobody takes that for a test that has passed."""


NONE, MAYBE, SURE, ENDS = Strength


@dataclass(frozen=True)
class Reader:
    """Reads statements of one scope."""

    scope: Scope
    nested: tuple[tuple[Function, Scope], ...] = ()
    """The functions that are defined inside of functions around here."""
    owner: ast.ClassDef | None = None
    busy: frozenset[Function] = frozenset()
    """The functions that are being read: one that calls itself asserts nothing by that."""

    def block(self, body: Sequence[ast.stmt]) -> Strength:
        """Statements one after the other."""
        found = NONE
        for n, line in enumerate(body):
            rest = body[n + 1 :]
            if isinstance(line, ast.Return | ast.Break | ast.Continue):
                value = line.value if isinstance(line, ast.Return) else None
                return max(found, self.calls(value) if value is not None else NONE)
            if isinstance(line, ast.If | ast.Match | ast.Try) and leaves(line):
                ways = self.both([self.block([*way, *rest]) for way in branches(line)])
                return max(found, ways)
            strength = self.statement(line)
            if strength >= SURE:
                return strength
            if leaves(line):
                return max(found, at_most_maybe(max(strength, self.block(rest))))
            found = max(found, strength)
        return found

    def both(self, ways: Sequence[Strength]) -> Strength:
        """One of several ways is gone."""
        kept = [way for way in ways if way is not ENDS]
        return ENDS if not kept else SURE if all(way is SURE for way in kept) else min(MAYBE, max(kept))

    def statement(self, line: ast.stmt) -> Strength:
        """One statement, which leaves nothing early but by an exception."""
        match line:
            case ast.Assert(test=test):
                return self.condition(test)
            case ast.Raise():
                return ENDS
            case ast.Expr(value=value):
                return max(self.statement_call(value), self.calls(value))
            case ast.If(body=[ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError")))], orelse=[]):
                return SURE
            case ast.If(body=[ast.Expr(value=ast.Call() as call)], orelse=[]) if called_name(call) == "fail":
                return SURE
            case ast.If() | ast.Match():
                return self.both([self.block(way) for way in branches(line)])
            case (
                ast.For(iter=iterable, body=body, orelse=orelse) | ast.AsyncFor(iter=iterable, body=body, orelse=orelse)
            ):
                once = self.block(body)
                sure = once if least(iterable, self.scope) else at_most_maybe(once)
                return max(sure, NONE if leaves_loop(body) else self.block(orelse))
            case ast.While(test=test, body=body):
                forever = isinstance(test, ast.Constant) and bool(test.value)
                return self.block(body) if forever else at_most_maybe(self.block(body))
            case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
                managers = [item.context_expr for item in items]
                return max([*map(self.statement_call, managers), *map(self.calls, managers), self.block(body)])
            case ast.Try(finalbody=final):
                return max(self.both([self.block(way) for way in branches(line)]), self.block(final))
        return NONE

    def condition(self, test: ast.expr) -> Strength:
        """What an assert says, or nothing, where it speaks of all of none."""
        match test:
            case ast.Call(func=ast.Name(id="all"), args=[ast.GeneratorExp() | ast.ListComp() as every]):
                return SURE if least(every, self.scope) else MAYBE
            case ast.UnaryOp(op=ast.Not(), operand=ast.Call(func=ast.Name(id="any"), args=[every])):
                vague = isinstance(every, ast.GeneratorExp | ast.ListComp) and not least(every, self.scope)
                return MAYBE if vague else SURE
            case ast.BoolOp(op=ast.And(), values=values):
                return max(self.condition(value) for value in values)
            case ast.BoolOp(op=ast.Or(), values=values):
                return self.both([self.condition(value) for value in values])
        return SURE

    def calls(self, node: ast.expr) -> Strength:
        """The calls in an expression that are known to check, or to end the test."""
        if isinstance(node, ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            return NONE
        if isinstance(node, ast.IfExp):
            return self.either(self.calls, node)
        name = called_name(node)
        if name in SKIPS:
            return ENDS
        if name in CHECKS or (isinstance(node, ast.Call) and name.startswith("assert_") and not self.helper(node.func)):
            return SURE
        inner = [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
        return max([self.calls(child) for child in inner], default=NONE)

    def either(self, read: Callable[[ast.expr], Strength], node: ast.IfExp) -> Strength:
        """One of two expressions; what must raise in some cases, and must not in others, is said by `nullcontext()`."""
        ways = [way for way in (node.body, node.orelse) if called_name(way) != "nullcontext"]
        return self.both([read(way) for way in ways])

    def statement_call(self, node: ast.expr) -> Strength:
        """A call whose result nobody takes."""
        match node:
            case ast.Await(value=value):
                return self.statement_call(value)
            case ast.IfExp():
                return self.either(self.statement_call, node)
            case ast.Call(func=ast.Attribute(attr="run"), keywords=keywords):
                return SURE if any(k.arg == "check" and ast.unparse(k.value) == "True" for k in keywords) else NONE
            case ast.Call(func=func):
                found = self.helper(func)
                return found.function_strength() if found is not None else NONE
        return NONE

    def helper(self, func: ast.expr) -> Helper | None:
        """The function of the tests that an expression names."""
        match func:
            case ast.Name(id=name):
                for function, scope in reversed(self.nested):
                    if function.name == name:
                        return Helper(function, replace(self, scope=scope))
            case ast.Attribute(value=ast.Name(id="self"), attr=attr) if self.owner is not None:
                return self.method(self.owner, self.scope.module, attr)
            case ast.Attribute(value=ast.Name(id=name), attr=attr):
                value = self.scope.value(name)
                made = value[1].called(value[0].func) if value and isinstance(value[0], ast.Call) else None
                if made is not None and isinstance(made[0], ast.ClassDef):
                    return self.method(made[0], made[1], attr)
        found = self.scope.called(func)
        if found is None or not isinstance(found[0], Function) or of_a_package(found[1]):
            return None
        return Helper(found[0], Reader(Scope(found[1]), busy=self.busy))

    def method(self, owner: ast.ClassDef, module: Module, name: str) -> Helper | None:
        """A method of a class in the tests."""
        around = Reader(Scope(module), owner=owner, busy=self.busy)
        found = [line for line in owner.body if isinstance(line, Function) and line.name == name]
        return Helper(found[0], around) if found and not of_a_package(module) else None

    def within(self, function: Function) -> Reader:
        """The reader of a function's own statements."""
        scope = self.scope.of(function)
        nested = (*self.nested, *[(inner, scope) for inner in functions_in(function)])
        return replace(self, scope=scope, busy=self.busy | {function}, nested=nested)


@dataclass(frozen=True)
class Helper:
    """A function, and the reader of what is around it."""

    function: Function
    around: Reader

    def function_strength(self) -> Strength:
        """What calling it asserts."""
        if self.function in self.around.busy:
            return NONE
        return self.around.within(self.function).block(self.function.body)


def of_a_package(module: Module) -> bool:
    """Whether a file is no helper of tests, but of what they test."""
    return any(module.path.is_relative_to(ROOT / package) for package in PACKAGES)


def at_most_maybe(strength: Strength) -> Strength:
    """What is left of a strength where nobody knows whether that runs."""
    return NONE if strength is ENDS else min(MAYBE, strength)


def called_name(node: ast.expr) -> str:
    """The last name of what a call calls."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def branches(line: ast.If | ast.Match | ast.Try) -> list[list[ast.stmt]]:
    """The ways through a statement."""
    if isinstance(line, ast.If):
        return [line.body, line.orelse]
    if isinstance(line, ast.Try):
        return [[*line.body, *line.orelse], *[handler.body for handler in line.handlers]]
    last = line.cases[-1]
    whole = isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None and last.guard is None
    return [*[case.body for case in line.cases], *([] if whole else [[]])]


def leaves(line: ast.stmt) -> bool:
    """Whether a statement may end the block around it early, other than by an exception."""
    match line:
        case ast.Return() | ast.Break() | ast.Continue():
            return True
        case ast.If() | ast.Match():
            return any(leaves(inner) for way in branches(line) for inner in way)
        case ast.For(body=body) | ast.AsyncFor(body=body) | ast.While(body=body):
            return any(isinstance(node, ast.Return) for node in inside(body))
        case ast.With(body=body) | ast.AsyncWith(body=body):
            return any(leaves(inner) for inner in body)
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
            return any(leaves(inner) for part in (body, *[h.body for h in handlers], orelse, final) for inner in part)
    return False


def leaves_loop(body: Sequence[ast.stmt]) -> bool:
    """Whether a loop may end before its `else`."""
    return any(isinstance(node, ast.Break | ast.Return) for node in inside(body))


def tests_of(module: Module) -> Iterator[tuple[Function, ast.ClassDef | None]]:
    """The tests of a file, with the class that each is in."""
    for node in module.tree.body:
        if isinstance(node, Function) and node.name.startswith("test_"):
            yield node, None
        if isinstance(node, ast.ClassDef):
            yield from [(n, node) for n in node.body if isinstance(n, Function) and n.name.startswith("test_")]


def unsure(path: Path) -> list[str]:
    """The tests of a file that may assert nothing: the line, the name, and what to do."""
    module = Module(path)
    return [
        f"{test.lineno} {test.name}: {ADVICE}"
        for test, owner in tests_of(module)
        if Helper(test, Reader(Scope(module), owner=owner)).function_strength() is MAYBE
    ]


def files(root: Path) -> list[Path]:
    """All Python files under a folder."""
    return sorted(root.rglob("*.py"))
