"""Meaning: computations and lowered programs evaluated in NumPy, and the dependence test on top.

Law: the definition that all else is held to; it takes nothing from the verifier and nothing from lowering.

In reading order:

    first    interp_expr, independent, reference_expr, reference_fold, reference, interp_memory, interp_scope
    then     interp, drawn, expr_numbers, reference_points, reference_demand
"""
