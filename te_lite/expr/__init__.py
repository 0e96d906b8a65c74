"""Scalar expressions: dtypes, nodes, what they read, their folding and simplification.

Law: scalars and their ranges; knows no operation, no stage and no statement.

In reading order:

    first    dtype, lanes, constant_folding, arithmetic, storage, spelling, intrinsics, misuse
    then     node, element, expr, intrin, interval, visit, reduction, own_reducers, sizes, linear, simplify
"""
