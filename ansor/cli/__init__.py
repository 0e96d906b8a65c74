"""The `ansor` command.

Law: reads arguments and prints; the work is done elsewhere.
"""
