"""Measurement: values and protocols, worker processes, the local builder and runner, the measurer.

Law: the only folder that starts processes.
"""

from ..core.device.backend import Backend, Device, Program
from ..core.tasks.measure_values import BuildResult, DeviceInfo, DeviceUse, MeasureErrorNo, MeasureInput, MeasureResult
from ..core.tasks.protocols import Builder, MeasureCallback, Runner
from .devices import list_devices
from .local import LocalBuilder, LocalRPCMeasureContext, LocalRunner
from .measurer import ProgramMeasurer

__all__ = [
    "Backend", "BuildResult", "Builder", "Device", "DeviceInfo", "DeviceUse", "LocalBuilder", "LocalRPCMeasureContext",
    "LocalRunner", "MeasureCallback", "MeasureErrorNo", "MeasureInput", "MeasureResult", "Program", "ProgramMeasurer",
    "Runner", "list_devices",
]  # fmt: skip
