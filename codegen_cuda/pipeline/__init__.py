"""Pipelines: copies that do not wait, and loops whose turns read ahead of themselves.

Law: loops over pipelined buffers only; without one of these a kernel is the same without this folder.

In reading order:

    files    async_copy, staged_copies, turns_ahead, fragments_ahead, operands_ahead
"""
