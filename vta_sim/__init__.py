"""The VTA accelerator in Python: its instructions, a simulator, its clock cycles, and the runtime that feeds it."""

from __future__ import annotations

from .core.config import Config, load_config, preset
from .core.environment import Environment, get_env
from .core.errors import ConfigError, DeadlockError, IsaError, MachineError, QueueError, VtaError
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
