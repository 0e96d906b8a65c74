"""The VTA accelerator in Python: its instructions, a simulator, its clock cycles, and the runtime that feeds it."""

from __future__ import annotations

from .config import Config, load_config, preset
from .errors import ConfigError, DeadlockError, IsaError, MachineError, QueueError, VtaError
from .runtime import CommandQueue
from .sim import Device

__all__ = [
    "CommandQueue",
    "Config",
    "ConfigError",
    "DeadlockError",
    "Device",
    "IsaError",
    "MachineError",
    "QueueError",
    "VtaError",
    "load_config",
    "preset",
]
