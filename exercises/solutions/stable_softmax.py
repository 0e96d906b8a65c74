"""Subtract the greatest of the row: the quotient stays, and no power is greater than 1."""

import te_lite as te


def softmax(x):
    n, m = x.shape
    j, k = te.reduce_axis((0, m), "j"), te.reduce_axis((0, m), "k")
    top = te.compute((n,), lambda i: te.max(x[i, j], axis=j), name="top")
    power = te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]), name="power")
    total = te.compute((n,), lambda i: te.sum(power[i, k], axis=k), name="total")
    return te.compute((n, m), lambda i, j: power[i, j] / total[i], name="softmax")
