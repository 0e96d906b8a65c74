"""Who imports whom in the six packages, and the cycles that this makes, between modules and between folders.

    python -m tests.architecture.imports            prints the counts of every package, and the cycles

An import counts wherever it stands: at the top of a module, inside a function, under TYPE_CHECKING (reported beside),
and as a string that names a module of ours.  Only the registry, hooks and the table of steps may name what is above
them; those look-ups, calls of `front_end`, `Hook` and `Kind`, do not count.  Importing a.b.c from outside of a.b runs
a/b/__init__.py, so it counts as an import of that face, too.

A room is a folder.  The face of a folder that holds folders is a room of its own above its files.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ("mini_ansor", "te_lite", "ansor", "ansor_ext", "codegen_c", "codegen_cuda", "relay_lite", "vta_sim")
LATER = "__getattr__, __dir__ = later(__name__)"
REGISTRY = "ansor.core.target.registry"
EXEMPT_CALLS = ("front_end", "Hook", "Kind")


@lru_cache(maxsize=2048)
def parsed(text: str) -> ast.Module:
    """The tree of a source text; every check of the code reads all of them."""
    return ast.parse(text)


class Kind(Enum):
    """Where an import stands."""

    TOP = "at the top"
    DEFERRED = "in functions"
    NAMED = "by name"
    TYPING = "TYPE_CHECKING"


@dataclass(frozen=True)
class Import:
    """`source` imports `target`, both modules of ours, in a line of its file."""

    source: str
    target: str
    kind: Kind
    line: int


@dataclass(frozen=True)
class Tree:
    """The modules of a working tree: the file of each, by dotted name; a package has the name of its folder."""

    root: Path
    files: Mapping[str, Path]

    @classmethod
    def of(cls, root: Path) -> Tree:
        """All modules of the packages under `root`."""
        files = {}
        for path in sorted(p for package in PACKAGES for p in (root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
        return cls(root, files)

    def room(self, module: str) -> str:
        """The room that a module lies in."""
        path = self.files[module]
        folder = str(path.parent.relative_to(self.root))
        over = path.name == "__init__.py" and any((d / "__init__.py").exists() for d in path.parent.iterdir())
        return f"{folder}/(face)" if over else folder

    def imports(self) -> list[Import]:
        """Every import of a module of ours by another one."""
        return [found for module in self.files for found in self.imports_of(module)]

    def imports_of(self, module: str) -> Iterator[Import]:
        """The imports of one module."""
        tree = parsed(self.files[module].read_text())
        for node, kind in _located(tree):
            for name in self._named_by(node, module):
                for target in self._run_by(name, module):
                    yield Import(module, target, _kind(node, kind), getattr(node, "lineno", 0))

    def _named_by(self, node: ast.AST, module: str) -> Iterable[str]:
        """The modules that a statement or a string names."""
        match node:
            case ast.Import(names=names):
                return [alias.name for alias in names]
            case ast.ImportFrom(names=names):
                base = self._base(node, module)
                inner = [f"{base}.{alias.name}" for alias in names]
                return [name if name in self.files else base for name in inner]
            case ast.Constant(value=str(text)) if "." in text and text in self.files and module != REGISTRY:
                return [text]
        return []

    def _base(self, node: ast.ImportFrom, module: str) -> str:
        """The module after `from`, in full."""
        if not node.level:
            return node.module or ""
        package = module.split(".") if self.files[module].name == "__init__.py" else module.split(".")[:-1]
        parts = package[: len(package) - node.level + 1]
        return ".".join([*parts, *([node.module] if node.module else [])])

    def _run_by(self, name: str, module: str) -> Iterator[str]:
        """The modules of ours that importing `name` from `module` runs: itself, and the faces on the way to it."""
        if name not in self.files or name == module:
            return
        yield name
        parts = name.split(".")
        for face in [".".join(parts[:k]) for k in range(1, len(parts))]:
            if face != module and not module.startswith(f"{face}."):
                yield face


def _kind(node: ast.AST, kind: Kind) -> Kind:
    return Kind.NAMED if isinstance(node, ast.Constant) else kind


def _located(tree: ast.AST, kind: Kind = Kind.TOP) -> Iterator[tuple[ast.AST, Kind]]:
    """All nodes that may name a module, with the kind of an import there."""
    for child in ast.iter_child_nodes(tree):
        match child:
            case ast.Call(func=ast.Name(id=name)) if name in EXEMPT_CALLS:
                continue
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                yield from _located(child, kind if kind is Kind.TYPING else Kind.DEFERRED)
            case ast.If() if is_typing_block(child):
                yield from _located(ast.Module(child.body, []), Kind.TYPING)
                yield from _located(ast.Module(child.orelse, []), kind)
            case _:
                yield child, kind
                yield from _located(child, kind)


def is_typing_block(node: ast.AST) -> bool:
    """`if TYPE_CHECKING:`."""
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def comes_later(node: ast.If) -> bool:
    """Whether the names of a typing block are those that a package imports when they are asked for."""
    return [ast.unparse(line) for line in node.orelse] == [LATER]


def typing_blocks(root: Path, package: str) -> list[str]:
    """`path:line` of every `if TYPE_CHECKING:` of a package, without those whose names come later."""
    return [
        f"{path.relative_to(root)}:{node.lineno}"
        for path in sorted((root / package).rglob("*.py"))
        for node in ast.walk(parsed(path.read_text()))
        if isinstance(node, ast.If) and is_typing_block(node) and not comes_later(node)
    ]


# --------------------------------------------------------------------------------------------------- cycles

Cycle = tuple[str, ...]


def _cycles(edges: Iterable[tuple[str, str]]) -> list[Cycle]:
    import networkx as nx  # takes as long to load as NumPy, and its compiled files are many

    graph = nx.DiGraph()
    graph.add_edges_from((a, b) for a, b in edges if a != b)
    return sorted(tuple(sorted(c)) for c in nx.strongly_connected_components(graph) if len(c) > 1)


def module_cycles(imports: Sequence[Import]) -> list[Cycle]:
    """The largest sets of modules that all reach each other."""
    return _cycles((i.source, i.target) for i in imports)


def room_cycles(tree: Tree, imports: Sequence[Import]) -> list[Cycle]:
    """The largest sets of rooms that all reach each other."""
    rooms = {module: tree.room(module) for module in tree.files}
    return _cycles((rooms[i.source], rooms[i.target]) for i in imports)


def touching(cycles: Iterable[Cycle], package: str) -> list[Cycle]:
    """The cycles that pass through a package."""
    return [c for c in cycles if any(x.replace("/", ".").split(".")[0] == package for x in c)]


# ---------------------------------------------------------------------------------------------------- table


def lines(root: Path = ROOT) -> Iterator[str]:
    """The table and the cycles."""
    tree = Tree.of(root)
    imports = tree.imports()
    heads = ["modules", *[k.value for k in Kind], "module cycles", "folder cycles"]
    yield f"{'':13}" + "".join(f"{head:>15}" for head in heads)
    of_modules, of_rooms = module_cycles(imports), room_cycles(tree, imports)
    for package in PACKAGES:
        own = [i for i in imports if i.source.split(".")[0] == package]
        counts = [sum(m.split(".")[0] == package for m in tree.files), *[sum(i.kind is k for i in own) for k in Kind]]
        counts += [len(touching(of_modules, package)), len(touching(of_rooms, package))]
        yield f"{package:13}" + "".join(f"{n:>15}" for n in counts)
    for what, cycles in (("modules", of_modules), ("folders", of_rooms)):
        for cycle in cycles:
            yield f"cycle of {len(cycle)} {what}: {', '.join(cycle)}"
    apart = [i for i in imports if i.kind is Kind.TYPING]
    for source, group in groupby(apart, key=lambda i: i.source):
        yield f"under TYPE_CHECKING, {source}: {', '.join(sorted({i.target for i in group}))}"


if __name__ == "__main__":
    print("\n".join(lines(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)))
