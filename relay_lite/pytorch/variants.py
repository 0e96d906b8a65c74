"""How a graph of few convolutions is computed on a GPU: the stopwatch chooses among layouts and methods.

PyTorch's images have their channels first.  Kernels of ours are faster with channels last, and Winograd's method needs
them there; but both move whole images, which takes longer than the convolution where channels are few.  What wins
depends on all kernels of a graph together, so the program of each way is compiled, without measuring others, and run.
Where all convolutions take as long as their bytes do, as depthwise ones, images stay as they are: nothing that is won
could pay for moving them.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any

import torch

from ansor.core.target.target import STRICT
from ansor.core.values.checks import nbytes
from te_lite.errors import TeError

from ..ir.errors import GraphError
from ..ir.module import IRModule, main_function
from ..ir.nodes import Call
from ..ir.visit import is_op, post_order
from ..runtime.library import NetworkLibrary
from ..transform import PassContext, SubPixelConvolutions, SumsBeforeProducts
from ..transform.alter_op_layout import WINOGRAD
from .faster import call_seconds
from .network import compiled, compiled_each, log_of, measure, prepared
from .options import Options
from .program import TorchProgram

MOST_CONVOLUTIONS = 6
"""In larger graphs, whose convolutions share the cost of moving images, channels come last."""
FEW_OPERATIONS = 4
"""Operations for each byte of its images, up to which a convolution takes as long as those do: GPUs have time for more
than ten.  With channels last each image is read and written once more, which is three times the bytes."""
Make = Callable[[NetworkLibrary], TorchProgram]
logger = logging.getLogger("ansor.torch")


class NotCompiled(GraphError):
    """A graph that cannot be compiled or put on its device."""


@dataclass(frozen=True)
class Variant:
    """The layout of convolutions of two axes, and whether Winograd's method may compute them."""

    layout: str
    winograd: bool

    @property
    def context(self) -> PassContext:
        """The passes that make it, with the options that are set."""
        return PassContext(opt_level=3, config={**(PassContext.current().config or {}), WINOGRAD: self.winograd})

    def __str__(self) -> str:
        return self.layout + ("" if self.winograd else " without Winograd's method")


@dataclass(frozen=True)
class Made:
    """A program, whether it has records and some were measured right before, the seconds that compiling took."""

    program: TorchProgram
    searched: bool = False
    seconds: float = 0.0


USUAL = Variant("NHWC", True)
DIRECT, FIRST = Variant("NHWC", False), Variant("NCHW", False)


def program_of(
    graph: IRModule, device: Any, options: Options, make: Make, inputs: Callable[[], Sequence[Any]], until: float
) -> Made:
    """The program of a graph on a device of torch, after the measurements that the options ask for, which end `until`
    then by the monotonic clock, less the seconds that compiling took before.

    `make` puts a network on the device, `inputs` draws tensors that it can be called with.  Raises NotCompiled, and
    what measuring raises.
    """
    begun = time.monotonic()
    variants = variants_of(graph, device, options)
    found = _fastest(variants, graph, device, options, make, inputs) if len(variants) > 1 else None
    spent = (time.monotonic() - begun) / len(variants)
    if found is not None and not options.measures:
        return Made(found[1])
    variant = variants[0] if found is None else found[0]
    del found
    with variant.context:
        wanted, target = prepared(graph, device.type, options, variant.layout)
        with log_of(options) as log:
            measured = measure(wanted, target, options, log, until - spent)
            begun = time.monotonic()
            try:
                library, recorded = compiled(wanted, target, log, options.records)
                return Made(make(library), measured and recorded, time.monotonic() - begun)
            except TeError as error:
                raise NotCompiled(str(error)) from error


def variants_of(graph: IRModule, device: Any, options: Options) -> list[Variant]:
    """The ways that are tried; one where nothing is to be chosen."""
    function = SubPixelConvolutions()(SumsBeforeProducts()(main_function(graph)))
    convs = [n for n in post_order(function.body) if is_op(n, "nn.conv2d")]
    exact = (options.precision or options.target_on(device.type).precision) == STRICT
    floats = all(n.dtype == "float32" for n in convs)
    if device.type != "cuda" or not 0 < len(convs) <= MOST_CONVOLUTIONS or not (exact and floats):
        return [USUAL]
    if all(map(_takes_its_bytes, convs)) and not any(is_op(n, "transpose") for n in post_order(function.body)):
        return [FIRST]
    return [USUAL, *([DIRECT] if any(map(_by_winograd, convs)) else []), FIRST]


def _takes_its_bytes(conv: Call) -> bool:
    """Whether a convolution with channels first takes as long as its images are read and written."""
    data, weight = conv.args
    terms = prod(weight.shape) // conv.shape[1]
    images = prod(data.shape) + prod(conv.shape)
    first = (conv.attrs["data_layout"], conv.attrs["kernel_layout"]) == ("NCHW", "OIHW")
    return first and 2 * terms * prod(conv.shape) <= FEW_OPERATIONS * nbytes((images,), data.dtype)


def _libraries(
    variants: Sequence[Variant], graph: IRModule, device: Any, options: Options
) -> list[NetworkLibrary | TeError]:
    """The networks of a graph in several ways, and the errors of those that cannot be compiled."""
    made = []
    for variant in variants:
        with variant.context:
            wanted, target = prepared(graph, device.type, options, variant.layout)
        made.append((wanted, target, variant.context))
    with log_of(options.unmeasured) as log:
        return compiled_each(made, log, options.records)


def _by_winograd(conv: Call) -> bool:
    """Whether Winograd's method may compute a convolution with channels first."""
    plain = conv.attrs["groups"] == 1 and {*conv.attrs["strides"], *conv.attrs["dilation"]} == {1}
    return plain and conv.args[1].shape[2:] == (3, 3)


def _fastest(
    variants: Sequence[Variant],
    graph: IRModule,
    device: Any,
    options: Options,
    make: Make,
    inputs: Callable[[], Sequence[Any]],
) -> tuple[Variant, TorchProgram] | None:
    """The way whose program takes least time, with that program; None where none runs.

    All are compiled before any is run, and wait for each other's compilers no longer than for their own.
    """
    best: tuple[float, Variant, TorchProgram] | None = None
    given: Sequence[Any] = ()
    libraries = _libraries(variants, graph, device, options)
    for variant in variants:
        try:
            given = given or inputs()
            library = libraries.pop(0)
            if isinstance(library, TeError):
                raise library
            program = make(library)
            (seconds,) = call_seconds([partial(program, *given)], device)
        except (TeError, torch.OutOfMemoryError) as error:
            logger.info("convolutions in %s are not tried: %s", variant, error)
            continue
        if best is None or seconds < best[0]:
            best = seconds, variant, program
        del program, library
        gc.collect()  # the memory of what has lost
        torch.cuda.empty_cache()
    if best is None:
        return None
    logger.info("convolutions of a graph: %s", best[1])
    return best[1], best[2]
