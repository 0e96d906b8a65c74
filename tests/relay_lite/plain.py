"""Layers of networks in plain NumPy and float64, channels first: what networks by name are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

from relay_lite import reference
from relay_lite.ir.module import IRModule

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]


def close(graph: IRModule, inputs: Arrays, params: Arrays, expected: Array) -> None:
    """The definition of a network gives `expected`, which is not the same everywhere."""
    got = reference.run(graph, inputs, params, dtype="float64")
    assert got.shape == expected.shape and np.ptp(expected) > 1e-2
    np.testing.assert_allclose(got, expected, atol=2e-6 * np.abs(expected).max())


def apart(values: Array) -> None:
    """The first and the last example of a batch have different results."""
    assert np.abs(values[0] - values[-1]).max() > 1e-2 * np.abs(values).max()


class Plain:
    """Layers whose parameters are those of a network, by their names."""

    def __init__(self, params: Arrays) -> None:
        self.p = {name: value.astype("float64") for name, value in params.items()}

    def affine(self, x: Array, name: str) -> Array:
        """A dense layer, with a bias if there is one."""
        return x @ self.p[f"{name}_weight"].T + self.p.get(f"{name}_bias", 0)

    def norm(self, x: Array, name: str, epsilon: float) -> Array:
        """A layer norm over the last axis."""
        centred = x - x.mean(axis=-1, keepdims=True)
        spread = np.sqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
        return centred / spread * self.p[f"{name}_gamma"] + self.p[f"{name}_beta"]

    def rms(self, x: Array, name: str, epsilon: float) -> Array:
        """A norm without a mean."""
        return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * self.p[f"{name}_gamma"]

    def batch_norm(self, x: Array, name: str, epsilon: float) -> Array:
        """With known statistics, of [n, c, h, w]."""
        gamma, beta, mean, var = (
            self.p[f"{name}_{part}"][:, None, None] for part in ("gamma", "beta", "moving_mean", "moving_var")
        )
        return (x - mean) / np.sqrt(var + epsilon) * gamma + beta

    def conv(self, x: Array, name: str, stride: int = 1, pad: int = 0) -> Array:
        """A convolution of [n, c, h, w] by OIHW, place by place of the window; depthwise where I is 1 of many."""
        weight = self.p[f"{name}_weight"]
        depthwise = weight.shape[1] == 1 < x.shape[1]
        k = weight.shape[2]
        x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
        rows, columns = ((n - k) // stride + 1 for n in x.shape[2:])
        out = np.zeros((len(x), len(weight), rows, columns))
        for i in range(k):
            for j in range(k):
                part = x[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride]
                w = weight[:, :, i, j]
                out += part * w[None, :, :, None] if depthwise else np.einsum("nchw,oc->nohw", part, w)
        return out + self.p[f"{name}_bias"][:, None, None] if f"{name}_bias" in self.p else out
