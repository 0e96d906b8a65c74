"""What report files share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest


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
