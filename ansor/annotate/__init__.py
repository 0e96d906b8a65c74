"""From sketches to complete programs, at random (section 4.2 of the Ansor paper)."""

from ..space.annotate_sample import sample
from ..space.tile_sizes import fill, holes

__all__ = ["fill", "holes", "sample"]
