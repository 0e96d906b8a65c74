"""The memories of the accelerator as scopes of te_lite."""

from __future__ import annotations

import math

from ..core.config import Config
from ..core.kinds import Memory

INP = "local.inp_buffer"
WGT = "local.wgt_buffer"
ACC = "local.acc_buffer"

MEMORY_OF = {INP: Memory.INP, WGT: Memory.WGT, ACC: Memory.ACC}


def lanes(config: Config, memory: Memory) -> int:
    """Numbers in one element of a memory."""
    return math.prod(config.elem_shape(memory))
