"""Whole networks: the library file, the executor, and who computes what.

Law: runs what `graph` divided; looks at no operator itself.
"""
