"""Small values, options and checks that all others share, and how sentences are worded.

Law: knows errors and nothing else of this package.

In reading order:

    first    parts, checks, context, json_values, options, recurrence
    then     schedule_primitives, steady
"""
