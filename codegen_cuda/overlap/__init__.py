"""Kernels that overlap: launched before the last one has ended, weights fetched ahead of their readers.

Law: between the kernels of a network only; a kernel by itself is the same without this folder.

In reading order:

    files    prefetch, dependent_launch
"""
