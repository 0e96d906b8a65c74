"""What our own objects offer is said by their classes and protocols, never found out by name."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.architecture.imports import parsed
from tests.architecture.test_code_rules import PACKAGES
from tests.nonempty import nonempty

ROOT = Path(__file__).parent.parent.parent
# objects of other libraries, and of users, that only their names tell
FOREIGN = {
    "__array_interface__", "__cuda_array_interface__", "numpy", "item", "sched_getaffinity", "device_type", "kind",
    "state_object", "graph_signature", "_schema", "stride", "is_view", "tags",
}  # fmt: skip


def probed(path: Path) -> set[str]:
    """The names that `getattr` with a default, or `hasattr`, asks for in a file."""
    found = set()
    for node in ast.walk(parsed(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) >= 2:
            asks = node.func.id == "hasattr" or (node.func.id == "getattr" and len(node.args) == 3)
            if asks and isinstance(node.args[1], ast.Constant):
                found.add(str(node.args[1].value))
    return found


def test_nothing_of_ours_is_probed_by_name() -> None:
    files = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    for path in nonempty(files):
        assert probed(path) <= FOREIGN, f"{path.relative_to(ROOT)}: {sorted(probed(path) - FOREIGN)}"


def test_a_probe_is_found(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text('x = getattr(runner, "slots", None) or hasattr(runner, "usage")\n')
    assert probed(tmp_path / "bad.py") == {"slots", "usage"}
