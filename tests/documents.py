"""A document as a program: its Python, what that prints, and what it draws.

The ```python blocks of a document are one program, run in an empty directory.  A ```text block right after one is what
it prints, `...` standing for anything.  A picture right after a block that ends in a drawing is that drawing.  A line
`name = VALUE  # in the tests: OTHER` has the other value where the tests run it.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests import small_searches

ROOT = Path(__file__).parent.parent
BESIDE_CODE = ("docs", "ansor_ext", "mini_ansor")
DOCUMENTS = sorted([*ROOT.glob("*.md"), *[page for folder in BESIDE_CODE for page in (ROOT / folder).rglob("*.md")]])
PICTURES = ROOT / "docs" / "pictures"
MARK = "\x1e"
PYTHON = re.compile(
    r"^```python\n(?P<code>.*?)^```\n(?:\s*^```text\n(?P<output>.*?)^```\n)?"
    r"(?P<image>\s*^!\[[^\]]*\]\([^)]*\bpictures/(?P<picture>\w+)\.svg\)\n)?",
    re.DOTALL | re.MULTILINE,
)
REDUCED = re.compile(r"^(\s*\w+ = )(.*?)  # in the tests: (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A ```python block: its text, the number of its first line, what it should print (None: anything), and the
    picture that its last expression draws, by the name of its file (None: it draws none)."""

    code: str
    line: int
    output: str | None
    picture: str | None = None

    @property
    def reduced(self) -> str:
        """The code at the sizes of the tests."""
        return REDUCED.sub(r"\1\3", self.code)

    @property
    def whole(self) -> str:
        """The code at the sizes of a reader."""
        return REDUCED.sub(r"\1\2", self.code)


def parts(text: str) -> list[str | Block]:
    """A document from top to bottom: text, and blocks with what they print and draw."""
    out: list[str | Block] = []
    end = 0
    for match in PYTHON.finditer(text):
        picture = match["picture"] if last_drawing(match["code"]) else None
        out += [text[end : match.start()]]
        out += [Block(match["code"], text[: match.start("code")].count("\n") + 1, match["output"], picture)]
        end = match.end() if picture or not match["image"] else match.start("image")
    return [part for part in [*out, text[end:]] if part]


def blocks(text: str) -> list[Block]:
    """The Python of a document."""
    return [part for part in parts(text) if isinstance(part, Block)]


def last_drawing(code: str) -> ast.expr | None:
    """The expression at the end of a block, which is no call of `print`."""
    body = ast.parse(code).body
    last = body[-1] if body else None
    if not isinstance(last, ast.Expr) or ast.unparse(last).startswith("print("):
        return None
    return last.value


def program(found: list[Block]) -> str:
    """All blocks as one program whose line numbers are those of the document; it writes its pictures as files."""
    lines: list[str] = []
    for block in found:
        code = drawing(block.reduced, block.picture) if block.picture else block.reduced
        lines += [""] * (block.line - 1 - len(lines)) + code.splitlines()
        lines.append(f"print({MARK!r}, flush=True)")
    return "\n".join(lines) + "\n"


def drawing(code: str, name: str) -> str:
    """The code of a block, whose last expression is written to a file."""
    expression = last_drawing(code)
    assert expression is not None, code
    lines = code.splitlines()
    first = expression.lineno - 1
    lines[first] = f"open({name + '.svg'!r}, 'w').write({lines[first]}"
    return "\n".join(lines).rstrip() + ")\n"


def agrees(shown: str, printed: str) -> bool:
    """Whether a document shows what was printed."""
    pattern = r".*?".join(re.escape(piece) for piece in shown.strip().split("..."))
    return re.fullmatch(pattern, printed.strip(), re.DOTALL) is not None


def run(document: Path, folder: Path) -> list[str]:
    """Runs the program of a document in an empty folder, and gives what each block prints."""
    script = folder.parent / f"{folder.name}_{document.stem}.py"
    script.write_text(program(blocks(document.read_text())))
    folder.mkdir()
    done = subprocess.run(
        small_searches.command(script), cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split(MARK)
