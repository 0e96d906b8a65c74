"""Is the output of a program right that is too large for the host to say what is right for each element?

The whole output is compared, on the device, with that of a reference program, the plain loop nest, which is itself held
to the definition at samples (`samples.py`): corners, edges, elements at random.  Elements of a program may differ from
those of the reference program by as much as what is accepted at samples does,

    |got - ref| <= c * (|ref| + m)

where m is the median magnitude of the samples, and c is the least that covers the interval of each.  Where nothing is
rounded they must be equal.  As everywhere the device only acquits: elements that differ by more are judged by the
definition, and are samples from then on.  At all samples a program is held to the definition.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from te_lite.errors import require
from te_lite.expr.dtype import FLOATS, computed

from ..core.device.backend import Array, DrawsArrays
from ..core.errors import MeasureError
from .check import Fault, fault, fault_text
from .samples import Definition, Samples

JUDGED_AT_MOST = 1024
"""Elements that are judged by the definition when they differ from those of the reference program."""
FIRST_BATCHES = (1, 15)
MOST_SAMPLES = 1 << 16


class BesideReference:
    """Looks at output `k` on the device; `reference` has that of the reference program.

    Raises MeasureError when that is wrong itself.
    """

    def __init__(self, device: DrawsArrays, definition: Definition, k: int, samples: Samples, reference: Any) -> None:
        self._device, self._definition, self._k = device, definition, k
        self._tensor = definition.dag.tensors[k]
        self._reference = reference
        self._most = min(JUDGED_AT_MOST, len(samples.places))
        self._keep(samples)
        values = device.pick(reference, self._places)
        found = fault(values, samples.right)
        if found is not None:
            law = f"the reference program is wrong: {self._text(found.count, int(samples.places[found.worst]), found)}"
            require(False, MeasureError, f"output {self._tensor.name}", law)
        self.slope, self.floor = tolerance(values, samples, self._tensor.dtype)

    def wrong(self, handle: Any) -> str:
        """What is wrong with an output, as `check.mismatch` says it; empty when nothing is."""
        found = fault(self._device.pick(handle, self._places), self._samples.right)
        if found is not None:
            count, _ = self._astray(handle)
            return self._text(max(count, found.count), int(self._samples.places[found.worst]), found)
        count, places = self._astray(handle)
        unknown = places[~np.isin(places, self._samples.places)]
        for part in _batches(unknown[: self._most]):
            right = self._definition.accepted_at(self._k, part)
            found = fault(self._device.pick(handle, self._device.put(part)), right)
            if found is not None:
                return self._text(count, int(part[found.worst]), found)
            if len(self._samples.places) < MOST_SAMPLES:
                self._keep(self._samples.joined(part, right))
        if count > len(places) or len(unknown) > self._most:
            size = self._samples.size
            return f"{count} elements of {size} differ from those of the reference program, too many to be judged"
        return ""

    def _keep(self, samples: Samples) -> None:
        self._samples, self._places = samples, self._device.put(samples.places)

    def _astray(self, handle: Any) -> tuple[int, Array]:
        return self._device.astray(handle, self._reference, self.slope, self.floor, MOST_SAMPLES)

    def _text(self, count: int, place: int, found: Fault) -> str:
        return fault_text(count, self._tensor.shape, "one", place, found.got, found.want)


def _batches(places: Array) -> Iterator[Array]:
    """One first: most programs that differ are wrong, and there."""
    start = 0
    for size in (*FIRST_BATCHES, len(places)):
        if start < len(places):
            yield places[start : start + size]
        start += size


def tolerance(values: Array, samples: Samples, dtype: str) -> tuple[float, float]:
    """`(slope, floor)`: elements may be off by `slope * |x| + floor`; `values` are those of the reference program."""
    if samples.exact or dtype not in FLOATS:
        return 0.0, 0.0
    values = values.astype(computed(dtype)).astype(np.float64)
    low, high = [x.astype(np.float64) for x in (samples.right.low, samples.right.high)]
    with np.errstate(all="ignore"):
        reach = np.maximum(high - values, values - low)
    known = np.isfinite(reach) & np.isfinite(values)
    if not known.any():
        return 0.0, 0.0
    reach, x = reach[known], np.abs(values[known])
    middle = float(np.median(x))
    if middle == 0:
        return 0.0, float(reach.max())
    slope = float((reach / (x + middle)).max())
    return slope, slope * middle
