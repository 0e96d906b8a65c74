"""Instructions of tensor cores in kernels: warps, groups of four warps, floats in two parts.

Law: products on tensor cores only; without one of these a kernel is the same without this folder.

In reading order:

    files    quad_stores, parts_text, wgmma_text, mma_text, parts_of_tiles, rows_ahead, warpgroup
"""
