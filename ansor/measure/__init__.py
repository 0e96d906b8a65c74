"""Measurement: values and protocols, worker processes, the local builder and runner, the measurer."""

from .api import (
    Backend,
    Builder,
    BuildResult,
    Device,
    MeasureCallback,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    Program,
    Runner,
)
from .devices import DeviceInfo, DeviceUse, list_devices
from .local import LocalBuilder, LocalRPCMeasureContext, LocalRunner
from .measurer import ProgramMeasurer

__all__ = [
    "Backend", "BuildResult", "Builder", "Device", "DeviceInfo", "DeviceUse", "LocalBuilder", "LocalRPCMeasureContext",
    "LocalRunner", "MeasureCallback", "MeasureErrorNo", "MeasureInput", "MeasureResult", "Program", "ProgramMeasurer",
    "Runner", "list_devices",
]  # fmt: skip
