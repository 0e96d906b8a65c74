"""From sketches to complete programs, at random (spec autoscheduler 5)."""

from .sample import sample
from .tile_sizes import fill, holes

__all__ = ["fill", "holes", "sample"]
