"""A compiled network that takes and gives tensors of torch: they are read and written where they lie.

The network is pointed at the memory of each call: its inputs, fresh outputs, and on a GPU also what its steps share,
which belongs to the call alone.  Weights that are as PyTorch has them are read there, too.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from ansor.core.device.nd import DeviceId
from ansor.core.device.network_backend import Executor
from ansor.core.device.network_plan import TensorPlace
from te_lite.errors import TeError

from ..ir.nodes import Array
from ..runtime.library import NetworkLibrary
from .memory_order import Order, back

ALIGNMENTS = {"cpu": 64, "cuda": 16}
"""What kernels of a device count on: on a GPU the widest access of a thread."""


@dataclass(frozen=True)
class Given:
    """How an output comes about: written by the network (`own`), a copy of an input, of another output, or a value."""

    shape: tuple[int, ...]
    dtype: Any
    storage: int
    own: bool = False
    of_input: int | None = None
    of_output: int | None = None
    value: Any = None


@dataclass(frozen=True, eq=False)
class Weight:
    """A weight: the tensor of PyTorch, and its values on the host, from which the program was made."""

    tensor: Any
    array: Array


class TorchProgram:
    """The network on a device of torch; calls take the inputs in order and give all outputs, one call at a time.

    `inputs` and `outputs` say in which order of axes the network takes and gives tensors (`memory_order.py`), without
    them in their own.  `weights` are those it was made from.  `copied` counts the inputs that had to be copied, for
    they do not lie as the network takes them, or are not aligned.
    """

    def __init__(
        self,
        library: NetworkLibrary,
        device: Any,
        inputs: Sequence[Order] = (),
        outputs: Sequence[Order] = (),
        weights: Sequence[Weight] = (),
    ) -> None:
        self.plan, self.device = library.plan, device
        self.alignment, self.copied = ALIGNMENTS[device.type], 0
        self.lent = _lent(library, weights, device)
        library = replace(library, lent={name: tensor.data_ptr() for name, tensor in self.lent.items()})
        self._lock = threading.Lock()
        self._there = torch.cuda.device(device) if device.type == "cuda" else nullcontext()
        with self._there:
            self._executor = _opened(library, device)
        self._inputs = [(place.storage, getattr(torch, place.dtype)) for place in self.plan.inputs]
        self._outputs = _outputs(library, device)
        self._orders = list(inputs) if any(order is not None for order in inputs) else None
        self._laid = [None if order is None else back(order) for order in outputs] if any(outputs) else None
        self._arena = self.plan.arena_bytes if device.type == "cuda" else 0

    def __call__(self, *tensors: Any) -> list[Any]:
        """The outputs for these inputs, which have the shapes, dtypes and device that the network was made for."""
        with self._lock, self._there:  # streams are those of the device that is current
            return self._run(tensors)

    def _run(self, tensors: Sequence[Any]) -> list[Any]:
        point, device = self._executor.point, self.device
        if self._orders is not None:
            tensors = [t if o is None else t.permute(o) for t, o in zip(tensors, self._orders, strict=True)]
        held = [self._aligned(t, d) for t, (_, d) in zip(tensors, self._inputs, strict=True)]  # until the run is queued
        for (storage, _), tensor in zip(self._inputs, held, strict=True):
            point(storage, tensor.data_ptr())
        made: list[Any] = [torch.empty(g.shape, dtype=g.dtype, device=device) if g.own else None for g in self._outputs]
        for given, tensor in zip(self._outputs, made, strict=True):
            if given.own:
                point(given.storage, tensor.data_ptr())
        if self._arena:
            arena = torch.empty(self._arena, dtype=torch.uint8, device=device)
            self._executor.point_arena(arena.data_ptr())
        self._executor.run(torch.cuda.current_stream(device).cuda_stream if device.type == "cuda" else None)
        made = self._completed(made, held)
        if self._laid is not None:
            made = [t if order is None else t.permute(order) for t, order in zip(made, self._laid, strict=True)]
        return made

    def _aligned(self, tensor: Any, dtype: Any) -> Any:
        """A tensor as it is read.  Some operators of PyTorch give another dtype than its traces promise, and what lies
        in memory may have the other sign (`x.conj().imag`).
        """
        here = tensor.device == self.device and tensor.dtype == dtype and not tensor.is_neg()
        if here and tensor.is_contiguous() and tensor.data_ptr() % self.alignment == 0:
            return tensor
        self.copied += 1
        return tensor.to(self.device, dtype, copy=True, memory_format=torch.contiguous_format)

    def _completed(self, made: list[Any], inputs: Sequence[Any]) -> list[Any]:
        """The outputs with those that the network does not write."""
        for k, given in enumerate(self._outputs):
            if given.of_input is not None:
                made[k] = inputs[given.of_input].reshape(given.shape).clone()
            elif given.of_output is not None:
                made[k] = made[given.of_output].reshape(given.shape).clone()
            elif given.value is not None:
                made[k] = given.value.clone()
        return made


def _opened(library: NetworkLibrary, device: Any) -> Executor:
    """The network on its device; where memory is short, without what PyTorch keeps for later."""
    where = DeviceId(device.type, device.index or 0)
    try:
        return library.on(where).executor
    except TeError:
        if device.type != "cuda":
            raise
        torch.cuda.empty_cache()
        return library.on(where).executor


def _lent(library: NetworkLibrary, weights: Sequence[Weight], device: Any) -> dict[str, Any]:
    """The weights of a network that neither folding nor packing has changed, by the names of its parameters.

    What is held is their memory: `weight.data = other` gives a weight other memory, which nobody is told of.
    """
    known = {_memory(w.array): w.tensor.detach() for w in weights if _lendable(w.tensor, device)}
    found = {name: known.get(_memory(array)) for name, array in library.values.items()}
    return {name: tensor for name, tensor in found.items() if tensor is not None}


def _memory(array: Array) -> tuple[int, int, str, bool]:
    """What two arrays have in common that are the same bytes in the same order."""
    return array.ctypes.data, array.nbytes, str(array.dtype), array.flags.c_contiguous


def _lendable(tensor: Any, device: Any) -> bool:
    dense = tensor.device == device and tensor.is_contiguous() and tensor.numel() > 0
    return bool(dense and tensor.data_ptr() % ALIGNMENTS[device.type] == 0)


def _outputs(library: NetworkLibrary, device: Any) -> list[Given]:
    """The outputs of a plan; one of several that share memory is written by the network."""
    plan, found = library.plan, list[Given]()
    read = {place.storage: k for k, place in enumerate(plan.inputs)}
    values = {place.storage: place for place in plan.params}
    first: dict[int, int] = {}
    for k, place in enumerate(plan.outputs):
        shape, dtype, at = place.shape, getattr(torch, place.dtype), place.storage
        if at in read:
            found.append(Given(shape, dtype, at, of_input=read[at]))
        elif at in values:
            found.append(Given(shape, dtype, at, value=_value(library, values[at], shape, dtype, device)))
        elif at in first:
            found.append(Given(shape, dtype, at, of_output=first[at]))
        else:
            first[at] = k
            found.append(Given(shape, dtype, at, own=True))
    return found


def _value(library: NetworkLibrary, place: TensorPlace, shape: tuple[int, ...], dtype: Any, device: Any) -> Any:
    """A constant as a tensor on a device, by its bytes: NumPy and torch have no common word for small floats."""
    data = bytearray(library.values[place.name].tobytes()) or bytearray(1)
    count = library.values[place.name].size
    return torch.frombuffer(data, dtype=dtype, count=count).reshape(shape).to(device) if count else torch.empty(
        shape, dtype=dtype, device=device
    )  # fmt: skip
