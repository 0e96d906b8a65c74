"""Descriptions that once failed: `corpus/NAME.json` holds one each, with what was wrong and whether it still is."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .kinds import KINDS, Kind

PLACE = Path(__file__).parent / "corpus"


@dataclass(frozen=True)
class Entry:
    """A description, and what was wrong with it."""

    name: str
    kind: Kind
    given: Any
    about: str


def entries() -> list[Entry]:
    """All entries in the order of their names."""
    return [_entry(path) for path in sorted(PLACE.glob("*.json"))]


def _entry(path: Path) -> Entry:
    data = json.loads(path.read_text())
    kind = KINDS[data["kind"]]
    return Entry(path.stem, kind, kind.read(json.dumps(data["given"])), data["about"])
