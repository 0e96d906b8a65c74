"""Small values, options and checks that all others share, and how sentences are worded.

Law: knows errors and nothing else of this package.

In reading order:

    first    place, parts, checks, context, json_values, layout_option, in_networks, options, recurrence
    then     schedule_primitives, seeds, sizes, steady, wording
"""
