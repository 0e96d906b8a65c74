"""The documents tell the truth: their Python runs and prints what they show, their links and tables are up to date.

The ```python blocks of a document are one program, run in an empty directory.  A ```text block right after one is what
it prints, `...` standing for anything.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ansor.sketch import RULES
from tests.file_table import DOCUMENT, idea, sources, with_table

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
MARK = "\x1e"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@dataclass(frozen=True)
class Block:
    """A ```python block: its text, the number of its first line, and what it should print (None: anything)."""

    code: str
    line: int
    output: str | None


def blocks(text: str) -> list[Block]:
    found = list(BLOCK.finditer(text))
    out = []
    for k, match in enumerate(found):
        if match[1] != "python":
            continue
        shown = None
        if k + 1 < len(found) and found[k + 1][1] == "text" and not text[match.end() : found[k + 1].start()].strip():
            shown = found[k + 1][2]
        out.append(Block(match[2], text[: match.start(2)].count("\n") + 1, shown))
    return out


def program(parts: list[Block]) -> str:
    """All blocks as one program whose line numbers are those of the document."""
    lines: list[str] = []
    for part in parts:
        lines += [""] * (part.line - 1 - len(lines)) + part.code.splitlines()
        lines.append(f"print({MARK!r}, flush=True)")
    return "\n".join(lines) + "\n"


def agrees(shown: str, printed: str) -> bool:
    pattern = r".*?".join(re.escape(piece) for piece in shown.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


LONG = {"README.md", "docs/01_from_expression_to_c.md", "docs/02_from_a_sketch_to_a_search.md",
        "docs/03_a_whole_network.md", "docs/export.md", "docs/replacing_a_part.md"}  # fmt: skip
"""Documents that search, or compile networks: for `make test-long`."""


def programs() -> Iterator[Any]:
    """The documents with Python in them; marked where they are long."""
    for document in DOCUMENTS:
        name = str(document.relative_to(ROOT))
        if blocks(document.read_text()):
            yield pytest.param(document, id=name, marks=[pytest.mark.long] if name in LONG else [])


@pytest.mark.parametrize("document", list(programs()))
def test_the_python_of_a_document_runs(document: Path, tmp_path: Path) -> None:
    parts = blocks(document.read_text())
    script, folder = tmp_path / document.name, tmp_path / "run"
    script.write_text(program(parts))
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(script)], cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    for part, printed in zip(parts, done.stdout.split(MARK), strict=False):
        where = f"{document.name}, line {part.line}, prints:\n{printed}"
        assert part.output is None or agrees(part.output, printed), where


def test_blocks_and_their_output_are_found() -> None:
    text = "a\n```python\nprint(1)\n```\n\n```text\n1\n```\nb\n```python\nx = 2\n```\nc\n```text\nno\n```\n"
    assert blocks(text) == [Block("print(1)\n", 3, "1\n"), Block("x = 2\n", 11, None)]
    assert program(blocks(text)).splitlines()[2] == "print(1)" and program(blocks(text)).splitlines()[10] == "x = 2"
    assert agrees("a ... c\n", "a b\nb c") and not agrees("a ... c\n", "a b d")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: str(d.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in LINK.findall(BLOCK.sub("", document.read_text())):
        assert "://" in target or (document.parent / target).exists(), target


def test_every_departure_of_a_rule_is_listed() -> None:
    text = (ROOT / "docs" / "differs_from_tvm.md").read_text()
    for rule in {type(rule): rule for rules in RULES.values() for rule in rules}.values():
        assert not rule.departs or f"| `{type(rule).__name__}` | {rule.departs} |" in text, rule


def test_the_figures_of_the_readme_are_those_of_the_results() -> None:
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
    text = (ROOT / "README.md").read_text()
    assert [row for row in rows if row not in text] == []


def test_the_table_of_files_is_up_to_date() -> None:
    text = DOCUMENT.read_text()
    assert text == with_table(text), "run `python -m tests.file_table`"
    assert all(idea(path) for path in sources()), [path for path in sources() if not idea(path)]
