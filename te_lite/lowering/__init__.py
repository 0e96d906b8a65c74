"""Lowering: from a state to a verified loop program, nest by nest, then pass by pass.

Law: reads states and bounds, makes statements; knows no target.

In reading order:

    first    zero_terms, layout, lower_facts, edges, lower_point
    then     lower_nest, scan_nest, scan_storage, thread_parts, vthread, unroll, sync, lower
    then     written_over
"""
