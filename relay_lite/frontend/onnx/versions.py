"""Which definition of every operator was read when its converter was written.

ONNX defines an operator anew when its attributes, inputs or meaning change, and a model of opset N holds the newest
definitions up to N.  A definition that is newer than the one named here is refused: nobody knows what it changed.
"""

from __future__ import annotations

from collections.abc import Mapping

OPSETS = range(7, 26)
"""The versions of the default domain that are read."""

_BY_VERSION: Mapping[int, str] = {
    1: "Not",
    7: "And Or Xor",
    9: "Scatter Shrink Upsample",
    10: "ConvInteger MatMulInteger QLinearConv ReverseSequence",
    11: "BitShift Compress DynamicQuantizeLinear OneHot Range Unique",
    12: "Celu Einsum",
    13: (
        "Abs ArgMax ArgMin Ceil Clip Concat DepthToSpace Erf Exp Expand Floor Gather GatherElements GatherND "
        "Gemm Greater Hardmax LRN Less Log LogSoftmax MatMul Max Mean MeanVarianceNormalization Min Mod Neg "
        "NonZero Reciprocal ReduceSum Sigmoid Sign Slice Softmax SoftmaxCrossEntropyLoss SpaceToDepth "
        "Sqrt Sum Tanh Tile"
    ),
    14: "Add CumSum Div Mul Relu Sub Trilu",
    15: "BatchNormalization Pow",
    16: "GreaterOrEqual LeakyRelu LessOrEqual PRelu Where",
    17: "BlackmanWindow HammingWindow HannWindow LayerNormalization MelWeightMatrix STFT",
    18: (
        "OptionalGetElement OptionalHasElement BitwiseAnd BitwiseNot BitwiseOr BitwiseXor CenterCropPad Col2Im "
        "ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceProd ReduceSumSquare ScatterElements "
        "ScatterND Split"
    ),
    19: "Equal Resize",
    20: "AffineGrid DFT Gelu IsInf IsNaN ReduceMax ReduceMin",
    21: "GroupNormalization QLinearMatMul",
    22: (
        "Acos Acosh Asin Asinh Atan Atanh AveragePool Conv ConvTranspose Cos Cosh Dropout Elu EyeLike GRU "
        "GlobalAveragePool GlobalLpPool GlobalMaxPool GridSample HardSigmoid HardSwish InstanceNormalization "
        "LSTM LpNormalization LpPool MaxPool Mish NegativeLogLikelihoodLoss RNN Round Selu Sin Sinh "
        "Softplus Softsign Tan ThresholdedRelu"
    ),
    23: "RMSNormalization RotaryEmbedding",
    24: "Attention Swish TopK",
    25: (
        "Cast CastLike Constant ConstantOfShape DequantizeLinear Flatten Identity If Loop Pad QuantizeLinear "
        "Reshape Scan Shape Size Squeeze Transpose Unsqueeze"
    ),
}

NEWEST: Mapping[str, int] = {op: version for version, ops in _BY_VERSION.items() for op in ops.split()}
"""By operator of the default domain: the version of its newest definition that is read."""
