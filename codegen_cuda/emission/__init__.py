"""A lowered program as CUDA C++, and what it asks of the device.

Law: text only; no compiler, no driver, no device.

In reading order:

    files    kernel_parts, shared, limits, launch_bounds, emit
"""
