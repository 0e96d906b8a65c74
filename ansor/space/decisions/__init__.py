"""The kinds of decisions that the programs of a sketch differ in, one class a file.

Law: a kind says everything about itself; nobody else knows one by name.
"""
