"""What everything else speaks of: configurations, kinds of instructions and memories, errors.

Law: values; nothing here runs, compiles or encodes.
"""
