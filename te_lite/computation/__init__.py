"""Computations: tensors, the operations that make them, how these read each other.

Law: what is computed, before anything is scheduled.

In reading order:

    files    tensor, scan, text, access, computation, derive
"""
