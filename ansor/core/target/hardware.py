"""The numbers of a machine that shape the search space.

The eight fields, in this order, are what a record line stores.
"""

from __future__ import annotations

import os
import platform
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

from te_lite import environment
from te_lite.errors import require

from ..errors import TaskError
from ..host.process import VECTOR_BYTES, group_cores, group_memory, host_family
from .registry import backend_module, entry_of, load_backend
from .target import Target

UNLIMITED = 2**31 - 1
NEVER_0 = ("num_cores", "vector_unit_bytes", "cache_line_bytes")


def host_cores() -> int:
    """The cores this process may use; TVM_NUM_THREADS or OMP_NUM_THREADS override."""
    return environment.TVM_NUM_THREADS.positive or environment.OMP_NUM_THREADS.positive or usable_cores()


def usable_cores() -> int:
    """The cores that the system leaves to this process, by its affinity and its control groups."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(count, group_cores() or count)


def host_memory() -> int:
    """The bytes of memory of this machine, or those that the control groups of this process may have."""
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(there, group_memory() or there)


def processor() -> str:
    """The model of this machine's processor."""
    info = Path("/proc/cpuinfo")
    for line in info.read_text(errors="replace").splitlines() if info.exists() else []:
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True, init=False)
class HardwareParams:
    """Limits and sizes of a machine; what is not given is the default of `target` (of `c` when there is none).

    num_cores: CPU cores (-1 on GPUs); vector_unit_bytes, cache_line_bytes: bytes; max_shared_memory_per_block,
    max_local_memory_per_block: bytes; max_threads_per_block, max_vthread_extent, warp_size: threads.
    Raises TaskError for a value that is not an integer of at least -1, and for a machine without cores or bytes,
    unless all numbers are 0, which stands for one of another kind.
    """

    num_cores: int
    vector_unit_bytes: int
    cache_line_bytes: int
    max_shared_memory_per_block: int
    max_local_memory_per_block: int
    max_threads_per_block: int
    max_vthread_extent: int
    warp_size: int

    _given: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        num_cores: int | None = None,
        vector_unit_bytes: int | None = None,
        cache_line_bytes: int | None = None,
        max_shared_memory_per_block: int | None = None,
        max_local_memory_per_block: int | None = None,
        max_threads_per_block: int | None = None,
        max_vthread_extent: int | None = None,
        warp_size: int | None = None,
        target: Target | str | None = None,
    ) -> None:
        values = (
            num_cores, vector_unit_bytes, cache_line_bytes, max_shared_memory_per_block, max_local_memory_per_block,
            max_threads_per_block, max_vthread_extent, warp_size,
        )  # fmt: skip
        names = [f.name for f in fields(self)]
        given = [name for name, value in zip(names, values, strict=True) if value is not None]
        defaults = values if len(given) == len(names) else _defaults("c" if target is None else target)
        for name, value, default in zip(names, values, defaults, strict=True):
            number = default if value is None else value
            ok = isinstance(number, int) and not isinstance(number, bool) and number >= -1
            require(ok, TaskError, f"hardware parameter {name}", "an integer of at least -1 is needed", got=number)
            law = "a positive number is needed, or -1 where a target has none"
            ok = number != 0 or name not in NEVER_0 or not any(defaults)
            require(ok, TaskError, f"hardware parameter {name}", law, got=number)
            object.__setattr__(self, name, number)
        object.__setattr__(self, "_given", tuple(names if target is not None else given))

    @classmethod
    def for_target(cls, target: Target | str) -> HardwareParams:
        """The defaults of a target.  Raises TaskError for a target that has none."""
        return cls(target=target)

    @classmethod
    def from_device(cls, target: Target | str) -> HardwareParams:
        """The numbers of the first device of a target, as its driver tells them, for searching its whole space.

        Raises BackendError or the backend's error when there is no device, TaskError for a target without drivers.
        """
        target = Target.of(target)
        kind = target.kind.name
        found: HardwareParams = load_backend(backend_module(kind), kind).hardware(target.text)
        return found

    def completed(self, target: Target | str) -> HardwareParams:
        """The same, with what nobody gave taken from the defaults of `target`.

        Raises TaskError when the numbers leave a GPU without threads.
        """
        whole = self
        if len(self._given) < len(fields(self)):
            whole = HardwareParams(**{name: getattr(self, name) for name in self._given}, target=target)
        if Target.of(target).family == "c":
            law = "a processor needs at least 1"
            require(whole.num_cores > 0, TaskError, "hardware parameter num_cores", law, got=whole.num_cores)
        if Target.of(target).is_gpu:
            for name in ("max_threads_per_block", "max_vthread_extent", "warp_size"):
                value = getattr(whole, name)
                require(value > 0, TaskError, f"hardware parameter {name}", "a GPU needs at least 1", got=value)
        return whole

    @property
    def of_another_kind(self) -> bool:
        """Whether these numbers mean nothing to the machine: all are 0."""
        return not any(astuple(self))

    def to_json(self) -> list[int]:
        """The list of a record line."""
        return list(astuple(self))


def _defaults(target: Target | str) -> tuple[int, ...]:
    target = Target.of(target)
    entry = entry_of(target.kind.name)
    if entry.hardware is not None:
        return astuple(entry.hardware)
    if entry.search:
        return (0,) * len(fields(HardwareParams))
    match entry.family:
        case "c":
            return (host_cores(), _vector_bytes(target), 64, 0, 0, 0, 0, 0)
        case "cuda":
            law = f"known models are {', '.join(GPUS)}"
            require(target.model in ("", *GPUS), TaskError, f"target {target.text!r}", law, model=target.model)
            return astuple(GPUS.get(target.model, CUDA))
    raise TaskError(f"target {target.text!r}: hardware parameters have no defaults, give all of them")


def _vector_bytes(target: Target) -> int:
    """Those of this processor, unless the target names one, of which only the backend knows (`from_device`)."""
    return max(VECTOR_BYTES.values()) if names_processor(target) else VECTOR_BYTES[host_family()]


def names_processor(target: Target) -> bool:
    """Whether a target for CPUs names one, which may be another than this machine's."""
    return "march" in target.attrs or "mcpu" in target.attrs


CUDA = HardwareParams(
    num_cores=-1,
    vector_unit_bytes=16,
    cache_line_bytes=64,
    max_shared_memory_per_block=49152,
    max_local_memory_per_block=UNLIMITED,
    max_threads_per_block=1024,
    max_vthread_extent=8,
    warp_size=32,
)

KIB = 1024
GPUS: dict[str, HardwareParams] = {
    model: replace(CUDA, max_shared_memory_per_block=shared)
    for model, shared in {
        "V100": 96 * KIB, "T4": 64 * KIB, "A100": 163 * KIB, "H100": 227 * KIB, "H200": 227 * KIB, "RTX3090": 99 * KIB,
        "RTX4090": 99 * KIB,
    }.items()
}  # fmt: skip
"""What blocks may have on request on well-known GPUs (CUDA programming guide, table of compute capabilities).

Targets without a `-model` keep to the 48 KiB that every GPU gives unasked, as TVM does.
"""
