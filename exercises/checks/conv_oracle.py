"""The learner's oracle against the meaning of `topi.nn.conv2d_nchw`, on shapes that hurt."""

from types import ModuleType

import numpy as np

import te_lite as te
from te_lite import topi
from te_lite.meaning.reference import evaluate

from ..core.verdict import function, need

HINT = """The output has (height + 2 * padding - kh) // stride + 1 rows. For tap (y, x), the pixels that it meets are a
strided slice of the padded data; add kernel[:, :, y, x] times that slice, as a product of matrices over channels."""

CASES = [
    ((2, 5, 7), (3, 2, 3, 3), 1, 0), ((2, 5, 7), (3, 2, 3, 2), 1, 1), ((3, 7, 5), (2, 3, 3, 3), 2, 1),
    ((1, 6, 9), (1, 1, 2, 4), 3, 2), ((4, 3, 3), (5, 4, 1, 1), 1, 0), ((2, 8, 8), (2, 2, 3, 3), 2, 0),
]  # fmt: skip


def check(answer: ModuleType) -> None:
    """The shape first; then whether the result is that of a mirrored kernel."""
    conv2d, rng = function(answer, "conv2d"), np.random.default_rng(7)
    for data_shape, kernel_shape, stride, padding in CASES:
        data, kernel = (rng.standard_normal(s) for s in (data_shape, kernel_shape))
        x = te.placeholder((1, *data_shape), "float64", name="x")
        w = te.placeholder(kernel_shape, "float64", name="w")
        y = topi.nn.conv2d_nchw(x, w, stride, padding, 1, "float64")
        want = evaluate([x, w, y], {x: data[None], w: kernel}, dtype="float64")[y][0]
        got = conv2d(data.copy(), kernel.copy(), stride, padding)
        case = f"data {data_shape}, kernel {kernel_shape}, stride {stride}, padding {padding}"
        need(np.shape(got) == want.shape, f"{case}: the shape is {want.shape}, yours {np.shape(got)}")
        flipped = evaluate([x, w, y], {x: data[None], w: kernel[:, :, ::-1, ::-1]}, dtype="float64")[y][0]
        mirrored = want.size > 1 and kernel_shape[2:] != (1, 1) and np.allclose(got, flipped)
        need(not mirrored, f"{case}: your kernel is mirrored; networks do not turn it around")
        off = np.argwhere(~np.isclose(got, want))
        edge = len(off) > 0 and padding > 0 and np.allclose(got[:, padding:-padding, padding:-padding],
                                                            want[:, padding:-padding, padding:-padding])  # fmt: skip
        need(not edge, f"{case}: only the border is wrong; is it padded with zeros?")
        need(len(off) == 0, f"{case}: {len(off)} of {want.size} elements are wrong, the first at {off[:1].tolist()}")
