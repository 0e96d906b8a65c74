"""The table of ONNX operators in docs/onnx_operators.md, made of what the importer reads.

python -m tests.onnx_operator_table      writes the document anew
"""

from __future__ import annotations

from pathlib import Path

from relay_lite.frontend.onnx.body import EXPANDED
from relay_lite.frontend.onnx.control import CONTROL
from relay_lite.frontend.onnx.domains import FOLDERS, converters_of, newest_of
from relay_lite.frontend.onnx.importer import is_read
from relay_lite.frontend.onnx.table import TABLE
from relay_lite.frontend.onnx.versions import NEWEST, OLDEST_FORMS, OPSETS

DOCUMENT = Path(__file__).parent.parent / "docs" / "onnx_operators.md"

HEAD = f"""# ONNX operators

Written by `python -m tests.onnx_operator_table` from what `relay_lite.frontend.from_onnx` reads: the operators of the
default domain, the opsets of a model at which each is read ({OPSETS.start} to {OPSETS.stop - 1} in all), and the newest
definition that is read.  A definition that is newer is refused, and so is every other operator, with the names of its
nodes; an attribute or input that a converter does not ask for is refused unless it has the value that ONNX gives it
where it is absent.  At opsets below {OLDEST_FORMS} an operator is read whose definition still holds at {OLDEST_FORMS}.
Operators of other domains stand below, each with its domain in front; the folder `relay_lite/frontend/onnx_ml` or
`onnx_microsoft` may be deleted without them.  Strings and maps are not computed: `from_onnx(..., outputs=[...])` asks
for values of numbers, by the names of any nodes' outputs.  What a static graph needs before it runs (shapes, axes) must
be known when the model is read; `from_onnx(model, fixed={{"sr": 16000}})`, and `ansor tune-network --fix sr=16000`,
give an input a value from which more is known.

`If`, whose condition is known only when the model runs: both branches are compiled, and must give tensors of equal
shapes and dtypes.  On the processor the kernels of one of them run; of two branches of a few operations on each element
both are computed and one is selected, and so it is of all branches on a GPU, whose kernels are queued before the first
one runs.  `Loop` and `Scan` are loops of the graph where shapes and dtypes stay the same in all steps, and are written
out otherwise (at most 1,024 steps).  A `Loop` whose trip count or condition is known only when the model runs goes on
for as long as it says; it gives no stacked results, whose length is not known.
"""


def opsets(op: str) -> range:
    """The opsets at which an operator is read, which follow one another."""
    read = [v for v in OPSETS if is_read(op, {"": v})]
    assert read == list(range(read[0], read[-1] + 1)), op
    return range(read[0], read[-1] + 1)


def text() -> str:
    """The document."""
    rows = ["| operator | opsets | newest definition |", "|---|---|---|"]
    for op in sorted({*TABLE, *CONTROL, *EXPANDED}):
        rows.append(f"| {op} | {opsets(op)[0]} to {opsets(op)[-1]} | {NEWEST[op]} |")
    others = ["| operator | versions of its domain |", "|---|---|"]
    for domain in FOLDERS:
        for op, versions in sorted(converters_of(domain).items()):
            others.append(f"| {domain}::{op} | {min(versions)} to {newest_of(domain)} |")
    return HEAD + "\n" + "\n".join(rows) + "\n\n" + "\n".join(others) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(text())
