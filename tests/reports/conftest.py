"""What report files share.

Networks are compiled soon, as in `tests/relay_lite`; single programs as users compile them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from codegen_c.compile import OBJECT_FLAGS
from tests.amount import WHOLE
from tests.compiled_soon import soon


@pytest.fixture
def compiled_whole(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A test whose graphs are compiled by us, node by node: what is left to PyTorch would be compared with itself."""
    from relay_lite.pytorch import partition

    real, refused = partition.refused_nodes, []

    def recorded(graph: Any) -> Mapping[str, str]:
        refused.append(real(graph))
        return refused[-1]

    monkeypatch.setattr(partition, "refused_nodes", recorded)
    yield
    assert refused and not any(refused), refused


@pytest.fixture(autouse=True)
def compile_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    if not WHOLE:
        monkeypatch.setattr("codegen_c.network.OBJECT_FLAGS", soon(OBJECT_FLAGS))
