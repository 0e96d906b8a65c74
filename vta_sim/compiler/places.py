"""Memory allocation for tiles on the chip.

Every virtual thread has its own copy of every tile: copy t of a tile lies t tile sizes after copy 0.  An element-wise
result takes the place of the accumulators that it is computed from, which nobody else may read, and costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from te_lite.errors import require
from te_lite.loops.stmt import Buffer

from ..core.config import Config
from ..core.errors import CompileError
from ..core.kinds import Memory
from .affine import affine
from .elementwise import Chain, chains
from .host_nest import HostNest, Part
from .scopes import ACC, MEMORY_OF, lanes


@dataclass(frozen=True)
class Places:
    """`base` and `size` of each tile, in elements: copy t begins at `base + t * size`.  `chains` of element-wise parts
    are those that overwrite what their result takes the place of."""

    base: Mapping[Buffer, int]
    size: Mapping[Buffer, int]
    chains: Mapping[Part, Chain]


def place(nest: HostNest, config: Config) -> Places:
    """Decide all places.  Raises CompileError when a tile is no whole number of elements or a memory too small."""
    size = {b: _elements(b, config) for b in nest.home}
    shared: dict[Buffer, Buffer] = {}
    found: dict[Part, Chain] = {}
    for part in nest.parts:
        if is_elementwise(part):
            chain = _in_place(part, nest)
            found[part] = chain
            if chain.root.buffer is not part.store.buffer:
                shared[part.store.buffer] = chain.root.buffer
    copies = math.prod(extent for _, extent in nest.threads)
    base: dict[Buffer, int] = {}
    for scope in MEMORY_OF:
        own = {b: size[b] for b in nest.home if b.scope == scope and b not in shared}
        base.update(_one_after_the_other(scope, own, copies, config))
    for b, root in shared.items():
        base[b] = base[root]
    return Places(base, size, found)


def _one_after_the_other(scope: str, size: Mapping[Buffer, int], copies: int, config: Config) -> dict[Buffer, int]:
    """Where the tiles of one memory begin.  Raises CompileError when it is too small."""
    base, used = {}, 0
    for b, elements in size.items():
        base[b] = used * copies
        used += elements
    memory = MEMORY_OF[scope]
    law = f"the tiles of {copies} virtual threads must fit the {config.depth(memory)} elements of {memory.name}"
    fits = used * copies <= config.depth(memory)
    require(fits, CompileError, scope, law, tiles={b.name: n for b, n in size.items()}, needed=used * copies)
    return base


def is_elementwise(part: Part) -> bool:
    """Whether a part computes accumulators from accumulators."""
    reads = part.read
    on_chip = part.store.buffer.scope == ACC and not part.inner
    return on_chip and bool(reads) and all(b.scope == ACC for b in reads)


def _elements(b: Buffer, config: Config) -> int:
    law = f"the storage must be one of {', '.join(MEMORY_OF)}"
    require(b.scope in MEMORY_OF, CompileError, b.name, law, scope=b.scope)
    memory: Memory = MEMORY_OF[b.scope]
    n = lanes(config, memory)
    law = f"a tile in {memory.name} must be whole elements of {n} numbers"
    require(b.size % n == 0, CompileError, b.name, law, shape=b.shape)
    return b.size // n


def _in_place(part: Part, nest: HostNest) -> Chain:
    """The chain whose root may be overwritten by the result of the part: itself, or what nobody else reads."""
    target, parts = part.store.buffer, nest.parts
    readers = [p for p in parts if target in p.read]
    stored_only = all(p.store.buffer.scope == "global" for p in readers)
    options = chains(part.store.value, stored_only)
    # an update of its own accumulators needs nobody's place
    own = [c for c in options if c.root.buffer is target and affine(c.root.index) == affine(part.store.index)]
    if own:
        return own[0]
    for chain in options:
        root = chain.root.buffer
        reads_again = any(step.other is not None and step.other.buffer is root for step in chain.steps[1:])
        others = [p for p in parts if root in p.read and p.store.buffer is not root]
        alone = others == [part] and not reads_again
        same_place = affine(chain.root.index) == affine(part.store.index) and root.size == target.size
        if alone and same_place and nest.home[root] == nest.home[target] == part.path:
            return chain
    law = "the result must take the place of an operand of the same shape that nobody else reads"
    raise CompileError(f"{part.name}: {law}, got operands {', '.join(c.root.buffer.name for c in options)}")
