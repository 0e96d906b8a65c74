"""Meaning: computations and lowered programs evaluated in NumPy, and the dependence test on top.

Law: the definition that all else is held to; it takes nothing from the verifier and nothing from lowering.

In reading order:

    first    interp_expr, independent, reference_expr, reference_fold, reference_scan, reference
    then     interp_memory, interp_scope, interp, drawn
"""
