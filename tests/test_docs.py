"""The documents tell the truth: their Python does what they show, their links and tables are up to date."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ansor.sketch import RULES
from tests.documents import DOCUMENTS, PICTURES, ROOT, Block, agrees, blocks, parts, program, run
from tests.file_table import idea, sources, table
from tests.nonempty import nonempty

NOT_SHOWN = re.compile(r"^```\w*\n.*?^```$|<!--.*?-->", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)|^\[\w+\]: (\S+)()$", re.MULTILINE)
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)

LONG = {
    "README.md", "docs/commands.md", "docs/export.md", "docs/measuring.md", "docs/offline.md",
    "docs/replacing_a_part.md", "docs/vta.md",
    "docs/chapters/06_cuda.md", "docs/chapters/08_search.md", "docs/chapters/10_networks.md",
}  # fmt: skip
"""Documents that search, or compile networks: for `make test-long`."""


def programs() -> Iterator[Any]:
    """The documents with Python in them; marked where they are long."""
    for document in DOCUMENTS:
        name = str(document.relative_to(ROOT))
        if blocks(document.read_text()):
            yield pytest.param(document, id=name, marks=[pytest.mark.long] if name in LONG else [])


@pytest.mark.parametrize("document", list(programs()))
def test_the_python_of_a_document_runs(document: Path, tmp_path: Path) -> None:
    found = blocks(document.read_text())
    for block, printed in nonempty(zip(found, run(document, tmp_path / "run"), strict=False)):
        where = f"{document.name}, line {block.line}"
        assert block.output is None or agrees(block.output, printed), f"{where}, prints:\n{printed}"
        if block.picture:
            drawn = (tmp_path / "run" / f"{block.picture}.svg").read_text()
            stale = f"{where}, draws another picture: run `python -m tests.document_pictures`"
            assert (PICTURES / f"{block.picture}.svg").read_text() == drawn, stale


def test_blocks_and_what_they_print_and_draw_are_found() -> None:
    text = (
        "a\n```python\nprint(1)\n```\n\n```text\n1\n```\nb\n"
        "```python\nn = 9  # in the tests: 2\n```\nc\n```text\nno\n```\n"
        "```python\ndraw(\n    n\n)\n```\n\n![A nest](pictures/nest.svg)\n\n"
        "```python\nprint(2)\n```\n![Not drawn](pictures/x.svg)\n"
    )
    shown, reduced, drawn, other = blocks(text)
    assert shown == Block("print(1)\n", 3, "1\n") and other.picture is None
    assert (reduced.reduced, reduced.whole, reduced.output) == ("n = 2\n", "n = 9\n", None)
    assert drawn.picture == "nest" and "Not drawn" in str(parts(text)[-1])
    lines = program(blocks(text)).splitlines()
    assert lines[2] == "print(1)" and lines[10] == "n = 2" and lines[17] == "open('nest.svg', 'w').write(draw("
    assert lines[19] == "))" and agrees("a ... c\n", "a b\nb c") and not agrees("a ... c\n", "a b d")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    assert broken_links(document.read_text(), document) == []


def broken_links(text: str, document: Path) -> list[str]:
    """The links of a document that lead to no file, or to no heading of one; code and comments have none."""
    broken = []
    for path, place, defined, _ in LINK.findall(NOT_SHOWN.sub("", text)):
        target = document.parent / (path or defined or document.name)
        there = "://" in path + defined or target.exists()
        if not there or (place and target.suffix == ".md" and place not in anchors(target.read_text())):
            broken.append(f"{path}{defined}{place and '#'}{place}")
    return broken


def test_broken_links_are_found() -> None:
    text = "[here](none.md), [there](README.md#no-such-part), [it](README.md), [all](#nowhere)\n```c\na[i](x);\n```\n"
    assert broken_links(text, ROOT / "README.md") == ["none.md", "README.md#no-such-part", "#nowhere"]


def anchors(text: str) -> set[str]:
    """The names by which the headings of a document are linked, as GitHub makes them."""
    headings = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found) for found in HEADING.findall(NOT_SHOWN.sub("", text))]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_a_heading_is_linked_by_its_words() -> None:
    assert anchors("## The paper's `Foo`: a-b\n```python\n# no\n```\n") == {"the-papers-foo-a-b"}


@pytest.mark.parametrize(("name", "most"), [("README.md", 9_000), ("CONTRIBUTING.md", 8_000), ("CHANGELOG.md", 12_000)])
def test_what_everybody_meets_first_stays_short(name: str, most: int) -> None:
    size = (ROOT / name).stat().st_size
    assert size <= most, f"{name} has {size:,} bytes, {most:,} is the limit: what only some need belongs to docs/"


def test_every_departure_of_a_rule_is_listed() -> None:
    text = (ROOT / "docs" / "differs_from_tvm.md").read_text()
    for rule in nonempty({type(rule): rule for rules in RULES.values() for rule in rules}.values()):
        assert not rule.departs or f"| `{type(rule).__name__}` | {rule.departs} |" in text, rule


def test_the_figures_of_the_documents_are_those_of_the_results() -> None:
    lanes, cpu = [
        json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text())["figures"]
        for name in ("lanes", "cpu_codegen")
    ]
    emission, matmul, conv = cpu["emission_ms"], cpu["matmul_1024_ms"], cpu["conv2d_layer_ms"]
    rows = (
        f"{lanes['total_ms']:.1f} ms | {lanes['single_ms']:,.0f} ms one by one",
        f"{emission['c: lower']:.1f} ms | {emission['c: in all']:.1f} ms with the C text",
        f"{emission['cuda: lower']:.1f} ms | |",
        f"{matmul['ours']:.1f} ms | NumPy: {matmul['numpy']:.1f} ms",
        f"{conv['best']:.1f} ms | untuned loop nest: {conv['untuned']:.1f} ms",
    )
    text = (ROOT / "docs" / "results" / "cpu.md").read_text()
    assert [row for row in rows if row not in text] == []
    at_once = f"{lanes['total_ms']:.1f} ms | one by one {lanes['single_ms']:,.0f} ms"
    assert at_once in (ROOT / "README.md").read_text()


def test_every_file_says_its_idea_in_its_first_line() -> None:
    assert [path for path in sources() if not idea(path)] == []


def test_the_table_of_files_is_printed_whole_or_of_a_folder() -> None:
    lines = table(sources()).splitlines()
    assert len(lines) == len(sources()) > 500
    some = table(sources("ansor/space", "te_lite/schedule/step.py")).splitlines()
    assert {line.split()[0].rpartition("/")[0] for line in some} >= {
        "ansor/space",
        "ansor/space/decisions",
        "te_lite/schedule",
    }
    assert [line.split()[0] for line in some if line.startswith("te_lite/")] == ["te_lite/schedule/step.py"]
    with pytest.raises(SystemExit, match="no such file or folder: ansor/spice"):
        sources("ansor/spice")
