"""Chapter 7, 25 minutes: the rule that tiles and fuses.

A hole in mini_ansor: rule 4 of the paper, `tile_with_fusion` of mini_ansor/sketch.py. It tiles stage k and the consumer
that reads it point by point alike, and computes the stage inside a tile of the consumer. It applies where stage k
reuses what it reads (`state.dag.tiled[k]`) and has such a consumer, and gives None elsewhere.

- `tiles` makes the loops of stage k: on a CPU "SSRSRS". `splits` has one entry for each axis of space.
- `follow_tiles(tiled, target, splits, n)` makes n + 1 levels of tiles of the consumer, of the same sizes.
- On a CPU there are two sketches: the stage is computed inside the tiles of the first level of its consumer, or of the
  second. On a GPU there is one, at level 3: inside blocks, virtual threads and threads.
- `compute_at(state, k, target, n)` computes stage k in loop number n of the target, from 0 on; the tiles of a level are
  complete in its last loop.
- Each state goes on with stage k - 1. `rest` says whether rules behind this one look at the stage, too, so that there
  is a sketch without fusion as well. There is on a CPU, but not for a cache (`made_by(state, k, "CHW")`): a cache
  that is not fused is of no use.

The check puts your rule among those of mini_ansor and derives the sketches of four computations.
"""

from mini_ansor.sketch import Applied, follow_tiles, fusion_target, made_by, tiles
from mini_ansor.steps import compute_at


def tile_with_fusion(machine, state, k):
    target = fusion_target(state, k)
    if ...:  # where does it not apply?
        return None
    tiled, splits = tiles(state, k, machine.structure)
    following = []
    for level in ...:
        fused = follow_tiles(tiled, target, splits, level)
        following.append(...)
    return Applied(following, rest=...)
