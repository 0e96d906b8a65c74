"""Options of sketch generation, of sampling and of builds, under the names of TVM's search parameters."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from te_lite.errors import require

from ..errors import TaskError


@dataclass(frozen=True)
class SketchOptions:
    """`S` and `R` in a tiling structure are levels of spatial and reduction loops, outermost first.

    Raises TaskError for another letter, a GPU structure that does not start with SSSR (blocks, virtual threads,
    threads, then the loop that fetches inputs), or a size that is not positive.
    `max_innermost_reduce_factor` is not TVM's: a sum in registers that runs through a whole reduction on a CPU is
    stored once, so there the innermost part of a reduction may be longer than that of a space axis.
    `max_padding` is not TVM's either: by how much of an extent with few divisors the tiles may run over it (0: tiles
    always divide).
    """

    cpu_multi_level_tiling_structure: str = "SSRSRS"
    gpu_multi_level_tiling_structure: str = "SSSRRSRS"
    max_innermost_split_factor: int = 64
    max_innermost_reduce_factor: int = 1024
    max_vectorize_size: int = 64
    max_padding: float = 0.125
    disable_change_compute_location: int = 0

    def __post_init__(self) -> None:
        for name in ("cpu_multi_level_tiling_structure", "gpu_multi_level_tiling_structure"):
            word = getattr(self, name)
            ok = isinstance(word, str) and set(word.upper()) == {"S", "R"}
            require(ok, TaskError, name, "a word of the letters S and R is needed", got=word)
        gpu = self.gpu_multi_level_tiling_structure
        law = "it must start with SSSR: blocks, virtual threads, threads, then the loop that fetches inputs"
        require(gpu.upper().startswith("SSSR"), TaskError, "gpu_multi_level_tiling_structure", law, got=gpu)
        for name in ("max_innermost_split_factor", "max_innermost_reduce_factor", "max_vectorize_size"):
            value = getattr(self, name)
            require(isinstance(value, int) and value > 0, TaskError, name, "a positive integer is needed", got=value)
        law = "a number from 0 to 1 is needed"
        require(0 <= self.max_padding <= 1, TaskError, "max_padding", law, got=self.max_padding)


# ------------------------------------------------------------------------------------------ layouts of constant weights


FREE = "layout_free_placeholders"
"""The attribute of an operation that names its inputs of free layout."""


class LayoutRewriteOption(IntEnum):
    """What happens to the layout of inputs that an operation marks as layout-free, such as constant weights.

    They stay as declared; a first stage of the program packs them; or they come packed in the order in which the
    program reads them (`layout_rewrite`).  The numbers are those of the record format.
    """

    NO_REWRITE = 0
    INSERT_TRANSFORM_STAGE = 1
    REWRITE_FOR_PRE_TRANSFORMED = 2


def layout_in_networks(kind: str) -> LayoutRewriteOption:
    """How weights are stored in the networks of a target kind, and so where their tasks are measured."""
    return LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED if kind == "c" else LayoutRewriteOption.NO_REWRITE


def cold_in_networks(kind: str) -> bool:
    """Whether the caches are emptied before each figure of such a task, since its weights come from memory."""
    return kind == "c"
