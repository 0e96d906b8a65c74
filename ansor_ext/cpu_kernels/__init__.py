"""Kernels of products on CPUs: sums in registers, packed panels, axes joined."""
