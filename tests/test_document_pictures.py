"""The pictures of the documents are those that their code makes, and each is shown somewhere."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from tests.document_pictures import DRAWN, drawn_by_blocks
from tests.documents import DOCUMENTS, PICTURES
from tests.nonempty import nonempty


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_a_picture_is_up_to_date(name: str) -> None:
    assert (PICTURES / f"{name}.svg").read_text() == DRAWN[name](), "run `python -m tests.document_pictures`"


def test_every_picture_is_drawn_and_shown() -> None:
    names = sorted([*DRAWN, *[name for names in drawn_by_blocks().values() for name in names]])
    assert sorted(path.stem for path in PICTURES.iterdir()) == names
    text = "".join(document.read_text() for document in DOCUMENTS)
    assert [name for name in names if f"pictures/{name}.svg)" not in text] == []


def test_every_picture_is_a_file_of_svg() -> None:
    for path in nonempty(PICTURES.iterdir()):
        assert ElementTree.fromstring(path.read_text()).tag.endswith("svg"), path
