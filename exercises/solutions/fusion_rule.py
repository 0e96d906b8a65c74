"""Tile both alike, and compute the stage where the tiles of a level are complete."""

from mini_ansor.sketch import Applied, follow_tiles, fusion_target, made_by, tiles
from mini_ansor.steps import compute_at


def tile_with_fusion(machine, state, k):
    target = fusion_target(state, k)
    if target is None or not state.dag.tiled[k]:
        return None
    tiled, splits = tiles(state, k, machine.structure)
    following = []
    for level in (3,) if machine.is_gpu else (1, 2):
        fused = follow_tiles(tiled, target, splits, level)
        following.append((compute_at(fused, k, target, level * len(splits) - 1), k - 1))
    return Applied(following, rest=not machine.is_gpu and not made_by(state, k, "CHW"))
