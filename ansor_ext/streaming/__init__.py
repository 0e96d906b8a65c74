"""Nests of GPUs for large tensors that are read about once."""
