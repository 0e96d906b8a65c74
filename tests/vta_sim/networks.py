"""Quantised networks that several tests share, and the same inference written in plain NumPy."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

import relay_lite as relay
from relay_lite.ir.module import IRModule
from relay_lite.ir.nodes import Call, Expr, Function, Tuple
from relay_lite.ir.visit import post_order
from relay_lite.op.numpy_windows import convolve
from relay_lite.testing import resnet_v1

SIZE = 64
Arrays = dict[str, np.ndarray]


@lru_cache
def resnet(size: int = SIZE, classes: int = 10) -> tuple[IRModule, Arrays]:
    """ResNet-18 v1 in float32, and its parameters."""
    return resnet_v1.get_workload(image_shape=(3, size, size), num_classes=classes)


@lru_cache
def quantized(size: int = SIZE, classes: int = 10) -> Function:
    """The same on integers."""
    module, params = resnet(size, classes)
    with relay.quantize.qconfig(global_scale=8.0, skip_conv_layers=[0]):
        return relay.quantize.quantize(module, params)["main"]


def images(count: int, size: int = SIZE, seed: int = 0) -> list[np.ndarray]:
    """Random images [1, 3, size, size]."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((1, 3, size, size)).astype("float32") for _ in range(count)]


def with_int8(function: Function) -> Function:
    """The function with every int8 tensor as a result before its own."""
    nodes = post_order(function.body)
    int8: list[Expr] = [n for n in nodes if isinstance(n, Call) and n.op.name == "annotation.stop_fusion"]
    return Function(function.params, Tuple((*int8, function.body)))


class PlainResnet:
    """Int8 inference of ResNet-18 v1 by its published layers; activations are int8 multiples of 1/16.

    It begins at the first int8 tensor and ends at the last; `tensors` are all int8 tensors in execution order.
    """

    def __init__(self, params: Arrays) -> None:
        self.params = params
        self.tensors: list[np.ndarray] = []

    def run(self, first: np.ndarray) -> list[np.ndarray]:
        self.tensors = [first]
        x = first
        for stage in (1, 2, 3, 4):
            for unit in (1, 2):
                x = self.unit(x, f"stage{stage}_unit{unit}", 2 if unit == 1 and stage > 1 else 1)
        return self.tensors

    def unit(self, x: np.ndarray, name: str, stride: int) -> np.ndarray:
        shortcut = x if stride == 1 else self.int8(*self.conv_norm(x, f"{name}_sc", stride))
        acc, unit = self.conv_norm(x, f"{name}_conv1", stride)
        body = self.int8(np.maximum(acc, 0), unit)
        body = self.int8(*self.conv_norm(body, f"{name}_conv2", 1))
        return self.int8(np.maximum(shortcut.astype("int64") + body, 0), -4)

    def conv_norm(self, x: np.ndarray, name: str, stride: int) -> tuple[np.ndarray, int]:
        """Accumulators, and the exponent of their unit."""
        gamma, beta, mean, var = (
            self.params[f"{name}_{part}"] for part in ("gamma", "beta", "moving_mean", "moving_var")
        )
        scale = np.float32(1) / np.sqrt(var + np.float32(1e-5)) * gamma
        weight = self.params[f"{name}_weight"] * scale[:, None, None, None]
        bias = -mean * scale + beta
        bits = int(np.ceil(np.log2(np.abs(weight).max()))) - 7
        integers = np.clip(np.rint(weight.astype("float64") / 2.0**bits), -127, 127).astype("int64")
        unit = bits - 4
        bias_bits = max(int(np.ceil(np.log2(np.abs(bias).max()))) - 7, unit)
        offsets = np.clip(np.rint(bias.astype("float64") / 2.0**bias_bits), -127, 127).astype("int64")
        pad = weight.shape[-1] // 2
        acc = convolve(x.astype("float64"), integers.astype("float64"), stride, pad).astype("int64")
        return acc + (offsets << bias_bits - unit)[:, None, None], unit

    def int8(self, acc: np.ndarray, unit: int) -> np.ndarray:
        """Rounded to multiples of 1/16, ties up, and clipped."""
        out = np.clip(np.floor(acc * 2.0 ** (unit + 4) + 0.5), -127, 127).astype("int8")
        self.tensors.append(out)
        return out
