"""How inputs of free layout are stored when a program is measured or built."""

from __future__ import annotations

from enum import IntEnum

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
