"""A network to work on: one that is known by name, with live random weights, or a model of ONNX or PyTorch.

network = load_network("resnet-18", batch_size=1, layout="NHWC")
network = load_network("model.onnx", shapes={"tokens": (1, 128)})
network, target = in_precision(network, "cuda", "fp16")        # products of halves
network = load_network("model.pt2")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ansor.core.target.target import HALVES, STRICT, Target
from te_lite.errors import require

from ..frontend.onnx.importer import from_onnx
from ..frontend.onnx.model import OnnxInput, read_model
from ..frontend.torch.importer import from_exported_program
from ..ir.errors import GraphError
from ..ir.module import IRModule, bind_params, main_function
from ..ir.nodes import Array
from ..testing.by_name import NETWORKS, get_workload, names_law
from ..testing.live import calm_scores, live_inputs, live_params
from ..transform import (
    ConvertLayout,
    FoldConstant,
    FoldScaleAxis,
    PassContext,
    ScoresInBatches,
    Sequential,
    SimplifyInference,
    SubPixelConvolutions,
    SumsBeforeProducts,
    ToMixedPrecision,
)

SUFFIX, EXPORTED = ".onnx", ".pt2"
LAYOUTS = ("NHWC", "NCHW")
PICTURE_RANK = 4


@dataclass(frozen=True, eq=False)
class Network:
    """`graph` and `params` are what is compiled; `original` has the same inputs and meaning, before any conversion.

    `precision` is that of its products (`in_precision`).
    """

    name: str
    graph: IRModule
    params: Mapping[str, Array]
    original: IRModule
    precision: str = STRICT

    def inputs(self, rng: np.random.Generator) -> dict[str, Array]:
        """Random inputs by name."""
        return live_inputs(self.original, self.params, rng)


def load_network(
    source: str,
    batch_size: int = 1,
    layout: str = "NHWC",
    image_size: Sequence[int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    seed: int = 0,
    fixed: Mapping[str, Any] | None = None,
) -> Network:
    """The network `source`: a name of `relay_lite.testing.NETWORKS`, or the path of a model, `.onnx` or `.pt2`.

    `image_size` are the last spatial extents, one number for height and width; `layout` is NHWC or NCHW.  Networks by
    name get live weights drawn from `seed`.  An ONNX model keeps its weights, and its convolutions are converted to
    `layout`; `shapes` are extents of its inputs by name, `batch_size` and `image_size` fill in what it leaves open,
    and those in `fixed` have these values.
    A program of `torch.export` keeps its weights, too, and leaves nothing open.
    Raises GraphError for an unknown name, layout or size, and for a model that cannot be read.
    """
    require(layout in LAYOUTS, GraphError, "layout", f"layouts are {' and '.join(LAYOUTS)}", layout=layout)
    inputs_law = "shapes and values of inputs are for ONNX models"
    named = {**(shapes or {}), **(fixed or {})}
    if source.endswith(EXPORTED):
        require(not named, GraphError, source, inputs_law, given=named)
        return from_program(source, Path(source).stem, layout)
    if source not in NETWORKS:
        law = f"a model is a file that ends in {SUFFIX} or {EXPORTED}"
        is_other = Path(source).suffix[1:].isalpha() and not source.endswith(SUFFIX)
        require(not is_other, GraphError, "network", law, got=source)
        law = f"{names_law(source)}, or the path of a model that ends in {SUFFIX} or {EXPORTED}"
        require(source.endswith(SUFFIX), GraphError, "network", law, name=source)
        return _from_onnx(Path(source), batch_size, layout, image_size, shapes or {}, fixed or {})
    require(not named, GraphError, source, inputs_law, given=named)
    return _by_name(source, batch_size, layout, image_size, seed)


def in_precision(network: Network, target: Target | str, precision: str) -> tuple[Network, Target]:
    """A strict network with its products in a precision, and the target to compile it for.

    `strict`, `fp32x3` and `tf32` are of the target; for `fp16` and `bf16` the graph changes (`ToMixedPrecision`), and
    its weights become constants, which are rounded when it is compiled.  Raises TaskError for a precision that the
    target lacks.
    """
    target = Target.of(target)
    if precision not in HALVES:
        return replace(network, precision=precision), target.with_precision(precision)
    graph, original = [
        IRModule.from_expr(bind_params(main_function(x), network.params)) for x in (network.graph, network.original)
    ]
    rows = target.kind.name in ("c", "cuda")
    passes = [
        SimplifyInference(keep_rows=rows),
        FoldConstant(),
        FoldScaleAxis(),
        ScoresInBatches(),
        ToMixedPrecision(HALVES[precision]),
    ]
    with PassContext(opt_level=3):
        mixed = Sequential(passes)(graph)
    return Network(network.name, mixed, {}, original, precision), target.with_precision(STRICT)


def _by_name(source: str, batch_size: int, layout: str, image_size: Sequence[int] | None, seed: int) -> Network:
    """A network of `NETWORKS` with live weights."""
    graph, params = get_workload(source, batch_size, layout, _image_shape(source, layout, image_size))
    rng = np.random.default_rng(seed)
    params = live_params(graph, params, rng)
    params = calm_scores(graph, params, live_inputs(graph, params, rng))
    return Network(f"{source}-{layout}-B{batch_size}", graph, params, graph)


def _image_shape(name: str, layout: str, size: Sequence[int] | None) -> tuple[int, ...] | None:
    """The usual image with other spatial extents, in the order of `layout`; None for the usual one."""
    if size is None:
        return None
    *spatial, channels = NETWORKS[name].image or (0,)
    given = tuple(size) * 2 if len(size) == 1 else tuple(size)
    ok = 2 <= len(given) <= len(spatial)
    law = "its image has no such extents" if spatial else "the network has no image"
    require(ok, GraphError, f"network {name}", law, image_size=tuple(size))
    whole = (*spatial[: -len(given)], *given)
    return (channels, *whole) if layout == "NCHW" else (*whole, channels)


def _from_onnx(
    path: Path, batch_size: int, layout: str, image_size: Sequence[int] | None, shapes: Mapping[str, Sequence[int]],
    fixed: Mapping[str, Any],
) -> Network:  # fmt: skip
    law = "an image has a height and a width, or one number for both"
    require(len(image_size or (1,)) in (1, 2), GraphError, f"model {path.name}", law, image_size=image_size)
    inputs = read_model(path).graph.inputs
    filled = {i.name: _filled(i, batch_size, image_size) for i in inputs if i.name not in fixed}
    known = {name: shape for name, shape in filled.items() if shape is not None}
    original, params = from_onnx(path, {**known, **shapes}, fixed=fixed)
    return Network(f"{path.stem}-{layout}-B{batch_size}", in_layout(original, layout), params, original)


def open_inputs(
    path: Path, batch_size: int, image_size: Sequence[int] | None, shapes: Mapping[str, Any]
) -> dict[str, str]:  # fmt: skip
    """The inputs of an ONNX model whose extents are still open with these values, and their shapes as declared."""
    inputs = read_model(path).graph.inputs
    left = [i for i in inputs if i.name not in shapes and not _is_closed(i) and not _filled(i, batch_size, image_size)]
    return {i.name: "unknown" if i.shape is None else ",".join(map(str, i.shape)) for i in left}


def _is_closed(given: OnnxInput) -> bool:
    return given.shape is not None and all(isinstance(n, int) for n in given.shape)


def from_program(program: Any, name: str, layout: str) -> Network:
    """A program of `torch.export`, or the path of one.  Raises as `from_exported_program` does."""
    original, params = from_exported_program(program)
    return Network(f"{name}-{layout}", in_layout(original, layout), params, original)


def in_layout(graph: IRModule, layout: str) -> IRModule:
    """The graph with its convolutions of two axes in another layout; transposed ones with strides are such, too."""
    with PassContext(opt_level=3):
        return Sequential(
            [SumsBeforeProducts(), SubPixelConvolutions(), ConvertLayout({"nn.conv2d": [layout, "default"]})]
        )(graph)


def _filled(given: OnnxInput, batch_size: int, image_size: Sequence[int] | None) -> tuple[int, ...] | None:
    """The shape of an input that leaves extents open, if these are the batch and the size of a picture; else None."""
    if given.shape is None or _is_closed(given):
        return None
    values: dict[int, int] = {0: batch_size}
    if image_size is not None and len(given.shape) == PICTURE_RANK:
        values |= dict(zip((2, 3), tuple(image_size) * (2 // len(image_size)), strict=True))
    extents = [n if isinstance(n, int) else values.get(axis) for axis, n in enumerate(given.shape)]
    return None if None in extents else tuple([n for n in extents if n is not None])
