"""From sketches to complete programs, at random (section 4.2 of the Ansor paper)."""

from .sample import sample
from .tile_sizes import fill, holes

__all__ = ["fill", "holes", "sample"]
