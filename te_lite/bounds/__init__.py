"""Bound inference: how far loops run, which regions are computed and read, what a nest touches.

Law: from states to extents, on ints and lanes alike; makes no statement.

In reading order:

    files    reads, loop_scope, overrun, bounds, nest, index_span, footprint
"""
