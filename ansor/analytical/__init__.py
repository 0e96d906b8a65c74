"""Analytical models: how long programs take by the figures of the machine, in closed form, on ints and lanes alike.

Law: seconds from the features of nests; nothing learnt.
"""

from .machine import CPU, GPU, GPUS, Cache, Machine, machine_of
from .roofline import seconds

__all__ = ["CPU", "GPU", "GPUS", "Cache", "Machine", "machine_of", "seconds"]
