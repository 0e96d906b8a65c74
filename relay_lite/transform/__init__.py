"""Passes over graphs, by TVM's names: `relay.transform.FoldConstant()(module)`.

A pass is made by calling its name; `PassContext` decides which passes of a `Sequential` run.

Law: a pass gives a new graph of the same meaning; ToMixedPrecision one that rounds more.
"""

from .alter_op_layout import AlterOpLayout
from .canonicalize import CanonicalizeCast, CanonicalizeOps, EliminateCommonSubexpr
from .convert_layout import ConvertLayout
from .defuse_ops import DefuseOps
from .fast_math import FastMath
from .flatten_pointwise import FlattenPointwise
from .fold_constant import FoldConstant
from .fold_scale_axis import FoldScaleAxis
from .fold_scale_axis_backward import BackwardFoldScaleAxis
from .fold_scale_axis_forward import ForwardFoldScaleAxis
from .fuse_moves import TurnProducts
from .fuse_ops import FuseOps
from .layout_rewrite import AutoSchedulerLayoutRewrite
from .legalize import Legalize
from .realize_quantized import RealizeQuantized
from .row_shapes import RowShapes
from .scores_in_batches import ScoresInBatches
from .sequential import InferType, Pass, PassContext, RemoveUnusedFunctions, Sequential, register_config
from .simplify_expr import SimplifyExpr, SimplifyExprPostAlterOp
from .simplify_inference import SimplifyInference
from .sub_pixel import SubPixelConvolutions
from .sums_before_products import SumsBeforeProducts
from .to_mixed_precision import ToMixedPrecision

__all__ = [
    "AlterOpLayout",
    "AutoSchedulerLayoutRewrite",
    "BackwardFoldScaleAxis",
    "CanonicalizeCast",
    "CanonicalizeOps",
    "ConvertLayout",
    "DefuseOps",
    "EliminateCommonSubexpr",
    "FastMath",
    "FlattenPointwise",
    "FoldConstant",
    "FoldScaleAxis",
    "ForwardFoldScaleAxis",
    "FuseOps",
    "InferType",
    "Legalize",
    "Pass",
    "PassContext",
    "RealizeQuantized",
    "RemoveUnusedFunctions",
    "RowShapes",
    "ScoresInBatches",
    "Sequential",
    "SimplifyExpr",
    "SimplifyExprPostAlterOp",
    "SimplifyInference",
    "SubPixelConvolutions",
    "SumsBeforeProducts",
    "ToMixedPrecision",
    "TurnProducts",
    "register_config",
]
