"""Expressions, vectors and reductions across threads as CUDA C++.

Law: the pieces of a kernel as text; knows no whole kernel.

In reading order:

    files    text, vectors, reduce
"""
