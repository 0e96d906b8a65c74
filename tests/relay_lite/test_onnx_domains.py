"""Other domains of ONNX: a folder each, imported when a model uses it, and not missed by others where it is deleted."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import pytest

from relay_lite.frontend import from_onnx
from relay_lite.frontend.onnx import domains
from relay_lite.ir.errors import GraphError
from tests.nonempty import nonempty
from tests.reports.everywhere import node_model

ROOT = Path(__file__).parent.parent.parent
X = np.zeros((2, 3), "float32")
MODELS = {
    "ai.onnx.ml": node_model("Binarizer", [X], domain=("ai.onnx.ml", 3)),
    "com.microsoft": node_model("Gelu", [X], domain=("com.microsoft", 1)),
    "": node_model("Relu", [X]),
}
LOADED = """
import sys
from relay_lite.frontend import from_onnx
from_onnx(sys.argv[1])
print(*sorted({m.split(".")[2] for m in sys.modules if m.startswith("relay_lite.frontend.")}))
"""


@pytest.mark.parametrize("domain", MODELS)
def test_a_folder_is_imported_where_it_is_used(domain: str, tmp_path: Path) -> None:
    onnx.save(MODELS[domain], tmp_path / "model.onnx")
    command = [sys.executable, "-c", LOADED, str(tmp_path / "model.onnx")]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=True
    )
    own = [f"onnx_{domains.FOLDERS[domain]}"] if domain else []
    assert done.stdout.split() == ["onnx", *own, "torch"]


@pytest.fixture
def without_folders(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As if the folders of all domains were deleted."""

    def missing(name: str) -> ModuleSpec | None:
        return None if name.startswith("relay_lite.frontend.onnx_") else find_spec(name)

    monkeypatch.setattr(domains, "find_spec", missing)
    domains._table.cache_clear()
    yield
    domains._table.cache_clear()


@pytest.mark.usefixtures("without_folders")
def test_without_its_folder_a_domain_is_refused_and_nothing_else() -> None:
    for domain, op in (("ai.onnx.ml", "Binarizer"), ("com.microsoft", "Gelu")):
        with pytest.raises(GraphError, match=f"these operators of opset 18 are not supported: {domain}::{op}"):
            from_onnx(MODELS[domain])
    from_onnx(MODELS[""])


def test_no_other_module_imports_the_folders() -> None:
    paths = [p for p in (ROOT / "relay_lite").rglob("*.py") if not p.parent.name.startswith("onnx_")]
    for path in nonempty(paths):
        assert "onnx_ml" not in path.read_text() and "onnx_microsoft" not in path.read_text(), path


def test_a_later_version_of_a_domain_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    table = domains._table("ai.onnx.ml")
    monkeypatch.setattr(table, "NEWEST", 0)
    with pytest.raises(GraphError, match=r"not supported: ai\.onnx\.ml::Binarizer"):
        from_onnx(MODELS["ai.onnx.ml"])
