"""Analytical models: how long programs take by the figures of the machine, in closed form, on ints and lanes alike."""

from .machine import CPU, GPU, GPUS, Cache, Machine, machine_of
from .model import AnalyticalModel
from .roofline import seconds

__all__ = ["CPU", "GPU", "GPUS", "AnalyticalModel", "Cache", "Machine", "machine_of", "seconds"]
