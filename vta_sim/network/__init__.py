"""Whole networks: the library file, the executor, and programs in one launch.

Law: runs what `graph` divided; looks at no operator itself.
"""
