"""What the importer says it reads, against ONNX's own definitions."""

from __future__ import annotations

from functools import cache

import onnx
import pytest

from relay_lite.frontend import from_onnx
from relay_lite.frontend.onnx import importer
from relay_lite.frontend.onnx.body import EXPANDED
from relay_lite.frontend.onnx.control import CONTROL
from relay_lite.frontend.onnx.importer import is_read
from relay_lite.frontend.onnx.table import IGNORED, TABLE
from relay_lite.frontend.onnx.versions import NEWEST, OPSETS
from relay_lite.ir.errors import GraphError
from tests.nonempty import nonempty
from tests.onnx_operator_table import DOCUMENT, text
from tests.relay_lite.onnx_models import Builder

DEFAULT = sorted(op for op in {*TABLE, *CONTROL, *EXPANDED} if "::" not in op)


@cache
def every_definition() -> dict[str, list[int]]:
    """The versions of the operators that the installed onnx knows, up to the last opset that is read."""
    found: dict[str, list[int]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain and schema.since_version < OPSETS.stop:
            found.setdefault(schema.name, []).append(schema.since_version)
    return found


def definitions(op: str) -> list[int]:
    return sorted(every_definition().get(op, []))


def test_the_document_is_up_to_date() -> None:
    assert DOCUMENT.read_text() == text(), "write it anew: python -m tests.onnx_operator_table"


def test_every_operator_names_a_definition_that_exists() -> None:
    assert sorted(NEWEST) == DEFAULT
    known = onnx.defs.onnx_opset_version()
    assert {op: NEWEST[op] for op in DEFAULT if NEWEST[op] not in definitions(op) and NEWEST[op] <= known} == {}
    assert {op: forms for op in DEFAULT if (forms := TABLE.get(op)) and max(forms) > NEWEST[op]} == {}


@pytest.mark.parametrize("opset", OPSETS)
def test_a_definition_that_was_not_read_is_refused(opset: int) -> None:
    for op in nonempty(DEFAULT):
        holds = max((v for v in definitions(op) if v <= opset), default=None)
        assert is_read(op, {"": opset}) <= (holds is not None and holds <= NEWEST[op]), op


def test_a_definition_of_the_future_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a later onnx had defined Relu anew at opset 20."""
    b = Builder(20)
    model = b.model(b.add("Relu", b.input((2, 3))))
    from_onnx(model)
    monkeypatch.setattr(importer, "definition", lambda op, opset: 20)
    with pytest.raises(GraphError, match="these operators of opset 20 are not supported: Relu"):
        from_onnx(model)


def test_what_is_ignored_is_defined() -> None:
    for op, names in IGNORED.items():
        every = {a for v in definitions(op) for a in onnx.defs.get_schema(op, v).attributes}
        assert set(names) <= every
