"""The operators: what each one is of type, what it means in NumPy, how it is computed, and how it is called.

Law: its type, its NumPy and its tensor expressions agree.
"""

from ..ir.op_registry import get

__all__ = ["get"]
