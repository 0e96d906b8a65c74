"""A compiled network that takes and gives tensors of torch: they are read and written where they lie.

On the processor the network is pointed at the memory of each call.  On a GPU its kernels are recorded once, with the
addresses of tensors that stay; a call copies on the device, in the current stream, and launches the recording.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ansor.core.nd import DeviceId
from ansor.core.network_plan import TensorPlace

from ..runtime.library import NetworkLibrary

ALIGNMENTS = {"cpu": 64, "cuda": 256}


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


class Program:
    """The network on a device of torch; calls take the inputs in order and give all outputs, one call at a time.

    `copied` counts the inputs that had to be copied, for they were not contiguous or not aligned.
    """

    def __init__(self, library: NetworkLibrary, device: Any) -> None:
        self.plan, self.device = library.plan, device
        self.alignment, self.copied = ALIGNMENTS[device.type], 0
        self._executor = library.on(DeviceId(device.type, device.index or 0)).executor
        self._lock = threading.Lock()
        self._inputs = [place.storage for place in self.plan.inputs]
        self._outputs = _outputs(library, device)
        self._kept: list[Any] = []
        self._stream: Any = None
        if device.type == "cuda":
            self._keep()

    def __call__(self, *tensors: Any) -> list[Any]:
        """The outputs for these inputs, which have the shapes, dtypes and device that the network was made for."""
        with self._lock:
            return self._on_device(tensors) if self._kept else self._in_place(tensors)

    def _in_place(self, tensors: Sequence[Any]) -> list[Any]:
        point = self._executor.point
        held = [self._aligned(t) for t in tensors]  # until the run is done
        for storage, tensor in zip(self._inputs, held, strict=True):
            point(storage, tensor.data_ptr())
        made: list[Any] = [torch.empty(g.shape, dtype=g.dtype) if g.own else None for g in self._outputs]
        for given, tensor in zip(self._outputs, made, strict=True):
            if given.own:
                point(given.storage, tensor.data_ptr())
        self._executor.run()
        return self._completed(made, held)

    def _aligned(self, tensor: Any) -> Any:
        if tensor.is_contiguous() and tensor.data_ptr() % self.alignment == 0:
            return tensor
        self.copied += 1
        return tensor.clone(memory_format=torch.contiguous_format)

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

    def _keep(self) -> None:
        """Tensors on the device that the recording reads and writes."""
        places = [(p.storage, p.shape, getattr(torch, p.dtype)) for p in self.plan.inputs]
        places += [(g.storage, g.shape, g.dtype) for g in self._outputs if g.own]
        for storage, shape, dtype in places:
            tensor = torch.empty(shape, dtype=dtype, device=self.device)
            self._executor.point(storage, tensor.data_ptr())
            self._kept.append(tensor)

    def _on_device(self, tensors: Sequence[Any]) -> list[Any]:
        stream = torch.cuda.current_stream(self.device)
        if self._stream is not None and self._stream != stream:
            stream.wait_stream(self._stream)
        self._stream = stream
        for kept, tensor in zip(self._kept, tensors, strict=False):
            kept.copy_(tensor)
        self._executor.run(stream.cuda_stream)
        written = iter(self._kept[len(self._inputs) :])
        return self._completed([next(written).clone() if g.own else None for g in self._outputs], tensors)


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
