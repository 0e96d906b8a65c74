"""Programs of one loop structure, with all extents: what features, limits and analytical models read.

One program has ints, n programs have int64 arrays with one lane each; whoever reads this treats both with the same
code (`te_lite.lanes`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from te_lite.bounds import Bounds


@dataclass(frozen=True)
class Programs:
    """`bounds.state` has the loops and their extents.  What differs between lanes but is no extent stands beside it.

    `parallel[k]` is how many of the outermost loops of stage k run in parallel, `vectorize[k]` how many of its
    innermost loops are vector lanes, `unroll[k]` its auto_unroll_max_step (ints or lanes); a stage that is missing
    has what its annotations say.  `n` is the number of lanes (1 for a single program).
    """

    bounds: Bounds
    n: int = 1
    parallel: Mapping[int, Any] = field(default_factory=dict)
    vectorize: Mapping[int, Any] = field(default_factory=dict)
    unroll: Mapping[int, Any] = field(default_factory=dict)
