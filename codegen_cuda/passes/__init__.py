"""Passes over the statements of a kernel before it is printed, and what decides on them.

Law: statements in, statements or decisions out; writes no text.

In reading order:

    files    reads_first, guarded_reads, lane_digits, runs, vector_writes, registers, outer_product
"""
