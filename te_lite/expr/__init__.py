"""Scalar expressions: dtypes, nodes, what they read, their folding and simplification.

Law: scalars and their ranges; knows no operation, no stage and no statement.

In reading order:

    first    dtype, lanes, laws, arithmetic, storage, spelling, intrinsics, misuse, node, element, expr, intrin
    then     interval, visit, reduction, linear, simplify
"""
