"""`tvm`: what the page calls by its full name."""

from ansor.core.device import nd
from relay_lite.ir.module import IRModule

from . import target, te, tir
from .relay import transform

__all__ = ["IRModule", "nd", "target", "te", "tir", "transform"]
