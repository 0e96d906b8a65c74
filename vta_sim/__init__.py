"""The VTA accelerator in Python: its instructions, a simulator, its clock cycles, and the runtime that feeds it."""

from __future__ import annotations

from .config import Config, load_config, preset
from .environment import Environment, get_env
from .errors import ConfigError, DeadlockError, IsaError, MachineError, QueueError, VtaError
from .runtime import CommandQueue
from .sim import Device

__all__ = [
    "CommandQueue",
    "Config",
    "ConfigError",
    "DeadlockError",
    "Device",
    "Environment",
    "IsaError",
    "MachineError",
    "QueueError",
    "VtaError",
    "get_env",
    "load_config",
    "preset",
]
