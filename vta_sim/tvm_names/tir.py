"""`tvm.tir`: constants."""

from te_lite import const

__all__ = ["const"]
