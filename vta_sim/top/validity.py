"""Validity rules for tiles of a convolution, decided from their sizes alone.

The compiler finds out all of this, and more, from the loops of a schedule.  Here a handful of numbers is enough, so a
tuner learns at once why a configuration is no program.  The rules are looked at in this order:

| rule       | law                                                                                          |
|------------|----------------------------------------------------------------------------------------------|
| `capacity` | the tiles of all virtual threads fit INP, WGT and ACC                                        |
| `division` | tiles divide the loops, and thread counts the loops over tiles: no instruction has conditions |
| `inputs`   | a tile of inputs is rows of consecutive elements, evenly spaced; a padded one is one plane     |
| `outputs`  | a tile of outputs (and of what is added to it) is rows of consecutive elements, evenly spaced  |
| `hazard`   | no micro-op writes an accumulator that one of the two before it wrote                         |
| `limits`   | at most 15 rows or columns of padding a side, at most as many micro-ops as fit their memory    |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..compiler.kernel_calls import Count, uops_of, writes_again
from ..compiler.transfer import MAX_PAD, Side, arranged
from ..core.config import Config
from ..core.kinds import Memory


@dataclass(frozen=True)
class ConvKnobs:
    """A configuration: lengths of the inner loops, and virtual threads over output channels and rows.

    `tile_b` is a knob of the space that nothing depends on.  Channels are counted in blocks.
    """

    tile_b: int = 1
    tile_h: int = 1
    tile_w: int = 1
    tile_ci: int = 1
    tile_co: int = 1
    oc_nthread: int = 1
    h_nthread: int = 1

    @property
    def threads(self) -> int:
        return self.oc_nthread * self.h_nthread


@dataclass(frozen=True)
class ConvShape:
    """Sizes of a convolution: input rows and columns, channel blocks, kernel, padding, strides; `extra` are the shapes
    (channel blocks, rows, columns) of what is added to the result, 1 where it is repeated."""

    height: int
    width: int
    ci: int
    co: int
    kernel: tuple[int, int]
    pad: tuple[int, int]
    stride: tuple[int, int]
    extra: tuple[tuple[int, int, int], ...] = ()

    @property
    def out(self) -> tuple[int, int]:
        """Output rows and columns."""
        h = (self.height + 2 * self.pad[0] - self.kernel[0]) // self.stride[0] + 1
        return h, (self.width + 2 * self.pad[1] - self.kernel[1]) // self.stride[1] + 1

    def window(self, k: ConvKnobs) -> tuple[int, int]:
        """Rows and columns of the inputs of a tile."""
        h = (k.tile_h - 1) * self.stride[0] + self.kernel[0]
        return h, (k.tile_w - 1) * self.stride[1] + self.kernel[1]


def broken_rule(shape: ConvShape, k: ConvKnobs, config: Config) -> tuple[str, str] | None:
    """The first rule that a configuration breaks and a sentence about it, or None for a valid one."""
    return next(_broken(shape, k, config), None)


def _broken(shape: ConvShape, k: ConvKnobs, config: Config) -> Iterator[tuple[str, str]]:
    for memory, need in _needs(shape, k).items():
        depth = config.depth(memory)
        if need * k.threads > depth:
            tiles = f"{need} elements times {k.threads} virtual threads"
            yield "capacity", f"the tile in {memory.name} must fit its {depth} elements, got {tiles}"
    yield from _division(shape, k)
    yield from _transfers(shape, k)
    uops = uops_of(_products(shape, k))
    if len(uops) > config.depth(Memory.UOP):
        yield "limits", f"a kernel must have at most {config.depth(Memory.UOP)} micro-ops, got {len(uops)}"
    if writes_again(uops):
        law = "a micro-op may not write an accumulator that one of the two before it wrote"
        yield "hazard", f"{law}, got tile_co={k.tile_co}, tile_h={k.tile_h}"
    if max(shape.pad) > MAX_PAD:
        yield "limits", f"padding must be at most {MAX_PAD} rows and columns a side, got {shape.pad}"


def _transfers(shape: ConvShape, k: ConvKnobs) -> Iterator[tuple[str, str]]:
    if not _is_plane(_inputs(shape, k), any(shape.pad)):
        law = "the tile of inputs must be evenly spaced rows" + (" of one plane" if any(shape.pad) else "")
        yield "inputs", f"{law}, got tile_ci={k.tile_ci}, window={shape.window(k)} of {shape.height, shape.width}"
    for co, h, w in shape.extra + ((shape.co, *shape.out),):
        tile = (min(k.tile_co, co), min(k.tile_h, h), min(k.tile_w, w))
        if not _is_plane(_sides(tile, (h * w, w, 1)), False):
            yield "outputs", f"the tile of outputs must be evenly spaced rows, got {tile} of {co, h, w}"


def _needs(shape: ConvShape, k: ConvKnobs) -> dict[Memory, int]:
    """Elements of one thread's tiles in each memory."""
    (ih, iw), (kh, kw) = shape.window(k), shape.kernel
    acc = k.tile_co * k.tile_h * k.tile_w
    acc += sum(min(k.tile_co, co) * min(k.tile_h, h) * min(k.tile_w, w) for co, h, w in shape.extra)
    return {Memory.INP: ih * iw * k.tile_ci, Memory.WGT: k.tile_co * k.tile_ci * kh * kw, Memory.ACC: acc}


def _division(shape: ConvShape, k: ConvKnobs) -> Iterator[tuple[str, str]]:
    (oh, ow) = shape.out
    tiles = (
        ("tile_h", k.tile_h, oh), ("tile_w", k.tile_w, ow), ("tile_ci", k.tile_ci, shape.ci),
        ("tile_co", k.tile_co, shape.co),
    )  # fmt: skip
    for name, tile, whole in tiles:
        if whole % tile:
            yield "division", f"{name} must divide {whole}, got {tile}"
    threads = (("oc_nthread", k.oc_nthread, shape.co // k.tile_co), ("h_nthread", k.h_nthread, oh // k.tile_h))
    for name, count, outer in threads:
        if outer % count:
            yield "division", f"{name} must divide the {outer} tiles, got {count}"


def _inputs(shape: ConvShape, k: ConvKnobs) -> list[Side]:
    ih, iw = shape.window(k)
    return _sides((k.tile_ci, ih, iw), (shape.height * shape.width, shape.width, 1))


def _sides(extents: Sequence[int], strides: Sequence[int]) -> list[Side]:
    return [Side(None, n, stride) for n, stride in zip(extents, strides, strict=True) if n > 1]


def _is_plane(sides: list[Side], padded: bool) -> bool:
    return len(arranged(sides, padded)) <= 2


def _products(shape: ConvShape, k: ConvKnobs) -> list[Count]:
    """The loops of the GEMM kernel, outermost first, with what they add to the accumulator's index."""
    kh, kw = shape.kernel
    loops = ((k.tile_ci, 0), (k.tile_w, 1), (kw, 0), (kh, 0), (k.tile_co, k.tile_h * k.tile_w), (k.tile_h, k.tile_w))
    return [Count(n, (step, 0, 0)) for n, step in loops if n > 1]
