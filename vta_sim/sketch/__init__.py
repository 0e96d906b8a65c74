"""Programs of the machine without a template: sketches of a computation, their lengths, limits and cycles.

Law: reads loops and extents, of one program or of thousands at once; nothing is run here.
"""

from .machine import VtaMachine, config_of, machine_of

__all__ = ["VtaMachine", "config_of", "machine_of"]
