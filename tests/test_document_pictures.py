"""The pictures of the documents are those that their code makes, and each is shown somewhere."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tests.document_pictures import DRAWN, FOLDER, path_of
from tests.test_docs import DOCUMENTS


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_picture_is_up_to_date(name: str) -> None:
    drawn = DRAWN[name]()
    assert path_of(name).read_text() == drawn, "run `python -m tests.document_pictures`"
    assert ElementTree.fromstring(drawn).tag.endswith("svg")


def test_every_picture_is_drawn_and_shown() -> None:
    assert sorted(path.stem for path in FOLDER.iterdir()) == sorted(DRAWN)
    text = "".join(document.read_text() for document in DOCUMENTS)
    assert [name for name in DRAWN if f"](pictures/{name}.svg)" not in text] == []
