"""What `ai.onnx.ml` does to features and with linear models and support vectors, against loops over every element."""

from __future__ import annotations

import itertools
import math
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_onnx

pytestmark = [pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++"),
              pytest.mark.one_in(3)]  # fmt: skip


def check(
    op: str, arrays: Sequence[Array], wants: Sequence[Any], tol: float = 1e-5, version: int = 3, **attrs: Any
) -> None:
    """One node in every way; integers are equal."""
    model = node_model(op, arrays, len(wants), domain=("ai.onnx.ml", version), **attrs)
    for who, found in nonempty(of_onnx(model, list(arrays))):
        for got, want in nonempty(zip(found, wants, strict=True)):
            assert got.shape == np.shape(want), (who, got.shape, np.shape(want))
            np.testing.assert_allclose(got, want, rtol=tol, atol=tol, err_msg=f"{op}: {who}")


def drawn(seed: int, *shape: int) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def listed(values: Any) -> list[float]:
    return [float(v) for v in np.asarray(values, "float32").ravel()]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "int32"])
def test_scaler(dtype: str) -> None:
    x = (drawn(1, 3, 4) * 5).astype(dtype)
    for offset, scale in ([0.5], [2.0, 3.0, -1.0, 0.25]), ([1.0, 2.0, 3.0, 4.0], [0.5]):
        want = [[(float(v) - offset[j % len(offset)]) * scale[j % len(scale)] for j, v in enumerate(r)] for r in x]
        check("Scaler", [x], [want], offset=offset, scale=scale)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = np.concatenate([drawn(2, 4, 3), [[-1, -2, 0], [0, 0, 0], [-1, -4, -2]]]).astype("float32")
    sizes = [{"MAX": max(r), "L1": sum(map(abs, r)), "L2": math.hypot(*r)}[norm] for r in x.tolist()]
    check("Normalizer", [x], [[[v / (s or 1) for v in r] for r, s in zip(x.tolist(), sizes, strict=True)]], norm=norm)


def test_imputer_and_binarizer() -> None:
    x = np.array([[math.nan, 1, -0.0], [2, math.nan, math.inf]], "float32")
    filled = [[7, 1, 0], [2, 8, math.inf]]
    check("Imputer", [x], [filled], imputed_value_floats=[7.0, 8.0, 9.0], replaced_value_float=math.nan)
    check("Imputer", [x.astype("float64")], [[[math.nan, 5, 0], [2, math.nan, math.inf]]],
          imputed_value_floats=[5.0], replaced_value_float=1.0)  # fmt: skip
    whole = np.array([[1, 2], [3, 1]])
    check("Imputer", [whole], [[[-4, 2], [3, -4]]], imputed_value_int64s=[-4], replaced_value_int64=1)
    check("Binarizer", [x], [[[0, 1, 0], [1, 0, 1]]], threshold=0.5)
    check("Binarizer", [whole], [[[0, 1], [1, 0]]], threshold=1.5)
    with pytest.raises(GraphError, match="imputed_value_floats must be one value, or one a feature"):
        from_onnx(node_model("Imputer", [x], domain=("ai.onnx.ml", 1), imputed_value_floats=[1.0, 2.0]))


def test_vectors_and_picked_columns() -> None:
    a, b = drawn(3, 2, 3), np.arange(4).reshape(2, 2)
    want = [[*a[i, :2], *b[i], 0] for i in range(2)]
    check("FeatureVectorizer", [a, b], [want], inputdimensions=[2, 3])
    check("FeatureVectorizer", [a[0], b[0]], [[[*a[0], *b[0]]]], inputdimensions=[3, 2])
    at = np.array([2, 0, 2])
    check("ArrayFeatureExtractor", [a, at], [[[r[k] for k in at] for r in a]])
    check("ArrayFeatureExtractor", [np.array([5, 6, 7]), at[None]], [[[7, 5, 7]]])


def test_categories() -> None:
    x = np.array([[1.9, -1.2], [3, 0.5]], "float32")
    want = [[[float(int(v) == c) for c in (1, -1, 3)] for v in row] for row in x.tolist()]
    check("OneHotEncoder", [x], [want], cats_int64s=[1, -1, 3], zeros=1)
    failing = [[row if any(row) else [math.nan] * 3 for row in part] for part in want]
    check("OneHotEncoder", [x], [failing], cats_int64s=[1, -1, 3], zeros=0)
    for attrs, said in (({"cats_strings": ["a"]}, "categories are strings"), ({"cats_int64s": [1, 1]}, "different")):
        with pytest.raises(GraphError, match=said):
            from_onnx(node_model("OneHotEncoder", [x], domain=("ai.onnx.ml", 1), **attrs))


@pytest.mark.parametrize("count", [1, 5, 13, 64, 100])
@pytest.mark.parametrize("kind", ["int64", "float32", "float64"])
def test_labels(count: int, kind: str) -> None:
    rng = np.random.default_rng(count)
    keys = rng.permutation(3 * count)[:count] - count
    x = rng.integers(-count - 2, 2 * count + 2, (4, 5)).astype(kind)
    values = rng.integers(-9, 9, count)
    keys, values = np.concatenate([keys, keys[:1]]), np.concatenate([values, [77]])
    table = {float(k): int(v) for k, v in zip(keys, values, strict=True)}
    attrs: dict[str, Any] = {"default_int64": -3, "values_int64s": values.tolist()}
    if kind == "int64":
        attrs["keys_int64s"] = keys.tolist()
    elif kind == "float32":
        table[math.nan], x[0, 0] = 55, math.nan
        attrs |= {"keys_floats": [*listed(keys), math.nan], "values_int64s": [*values.tolist(), 55]}
    else:
        attrs = {
            "keys_tensor": numpy_helper.from_array(keys.astype(kind)), "values_tensor": numpy_helper.from_array(values),
            "default_tensor": numpy_helper.from_array(np.array([-3])),
        }  # fmt: skip
    want = [[55 if v != v else table.get(float(v), -3) for v in row] for row in x]
    check("LabelEncoder", [x], [want], version=4, **attrs)


def test_labels_that_are_strings_are_refused() -> None:
    x = np.zeros((2,), "int64")
    for attrs in ({"keys_int64s": [1], "values_strings": ["a"]}, {"classes_strings": ["a", "b"]}):
        with pytest.raises(GraphError, match="are strings: only numbers are computed"):
            from_onnx(node_model("LabelEncoder", [x], domain=("ai.onnx.ml", 2), **attrs))


def scores(row: Sequence[float], name: str) -> list[float]:
    """Transforms by their definitions; PROBIT is in a table of the normal distribution."""
    if name == "LOGISTIC":
        return [1 / (1 + math.exp(-v)) for v in row]
    if name == "SOFTMAX":
        return [math.exp(v) / sum(map(math.exp, row)) for v in row]
    return list(row)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_models(transform: str) -> None:
    x, weights, shift = drawn(5, 6, 4), drawn(6, 3, 4), drawn(7, 3)
    raw = [[sum(a * b for a, b in zip(r, w, strict=True)) + s for w, s in zip(weights, shift, strict=True)] for r in x]
    attrs: dict[str, Any] = {"coefficients": listed(weights), "intercepts": listed(shift), "post_transform": transform}
    check("LinearRegressor", [x], [[scores(r, transform) for r in raw]], targets=3, **attrs)
    label = [[8, 2, 5][int(np.argmax(r))] for r in raw]
    check("LinearClassifier", [x], [label, [scores(r, transform) for r in raw]], classlabels_ints=[8, 2, 5], **attrs)
    attrs |= {"coefficients": listed(weights[0]), "intercepts": listed(shift[:1]), "classlabels_ints": [3, 4]}
    if transform == "SOFTMAX":
        with pytest.raises(GraphError, match="of one score for two classes there are NONE and LOGISTIC"):
            from_onnx(node_model("LinearClassifier", [x], 2, domain=("ai.onnx.ml", 1), **attrs))
        return
    one = [r[0] for r in raw]
    both = [[1 - s, s] if transform == "NONE" else scores([-s, s], transform) for s in one]
    check("LinearClassifier", [x], [[4 if s > 0 else 3 for s in one], both], **attrs)


def test_probit_is_near_the_normal_quantile() -> None:
    """Quantiles of the normal distribution, from tables; everyone's formula is right to two digits."""
    x = np.array([[0.5, 0.841344746], [0.977249868, 0.158655254], [0.9986501, 0.25]], "float32")
    want = [[0, 1], [2, -1], [3, -0.67448975]]
    attrs: dict[str, Any] = {"coefficients": [1.0, 0.0, 0.0, 1.0], "targets": 2, "post_transform": "PROBIT"}
    check("LinearRegressor", [x], [want], tol=1e-2, **attrs)


def alike(kind: str, a: Array, b: Array, gamma: float, shift: float, degree: int) -> float:
    dot = sum(float(p) * float(q) for p, q in zip(a, b, strict=True))
    far = sum((float(p) - float(q)) ** 2 for p, q in zip(a, b, strict=True))
    return float({
        "LINEAR": dot, "POLY": (gamma * dot + shift) ** degree, "RBF": math.exp(-gamma * far),
        "SIGMOID": math.tanh(gamma * dot + shift),
    }[kind])  # fmt: skip


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors_of_regressors(kind: str) -> None:
    x, vectors, factors = drawn(8, 5, 3), drawn(9, 4, 3), drawn(10, 4)
    attrs: dict[str, Any] = {
        "kernel_type": kind, "kernel_params": [0.5, 0.25, 3.0], "support_vectors": listed(vectors), "n_supports": 4,
        "coefficients": listed(factors), "rho": [0.125],
    }  # fmt: skip
    want = [
        [sum(f * alike(kind, r, v, 0.5, 0.25, 3) for f, v in zip(factors, vectors, strict=True)) + 0.125] for r in x
    ]
    check("SVMRegressor", [x], [want], tol=1e-4, **attrs)
    check("SVMRegressor", [x], [[[1 if v > 0 else -1] for (v,) in want]], one_class=1, **attrs)


def probabilities(pairs: dict[tuple[int, int], float], count: int) -> list[float]:
    """The minimum of the sum over pairs of (r_ji p_i - r_ij p_j)^2 with a sum of 1, by a linear system."""
    q = np.zeros((count + 1, count + 1))
    for i, j in itertools.permutations(range(count), 2):
        q[i, i] += pairs[j, i] ** 2
        q[i, j] = -pairs[j, i] * pairs[i, j]
    q[:count, count] = q[count, :count] = 1
    return list(np.linalg.solve(q, [0] * count + [1])[:count])


@pytest.mark.parametrize("kind", ["RBF", "LINEAR"])
@pytest.mark.parametrize("count", [2, 4])
def test_support_vectors_of_classifiers(kind: str, count: int) -> None:
    sizes = [2, 1, 3, 2][:count]
    total, pairs = sum(sizes), list(itertools.combinations(range(count), 2))
    x, vectors, factors = drawn(11, 6, 3), drawn(12, total, 3), drawn(13, count - 1, total)
    rho, a, b = drawn(14, len(pairs)), -abs(drawn(15, len(pairs))), drawn(16, len(pairs)) / 4
    owner = [c for c, n in enumerate(sizes) for _ in range(n)]
    labels, duels, chances = list[int](), list[list[float]](), list[list[float]]()
    for row in x:
        near, votes, duel = [alike(kind, row, v, 0.5, 0, 1) for v in vectors], [0] * count, list[float]()
        chance: dict[tuple[int, int], float] = {}
        for k, (i, j) in enumerate(pairs):
            score = float(rho[k])
            for v in range(total):
                score += near[v] * float(factors[j - 1, v] if owner[v] == i else factors[i, v] if owner[v] == j else 0)
            votes[i if score > 0 else j] += 1
            duel.append(score)
            chance[i, j] = 1 / (1 + math.exp(score * float(a[k]) + float(b[k])))
            chance[j, i] = 1 - chance[i, j]
        labels.append(20 + int(np.argmax(votes)))
        duels.append(duel if count > 2 else [-duel[0], duel[0]])
        chances.append(probabilities(chance, count))
    attrs: dict[str, Any] = {
        "kernel_type": kind, "kernel_params": [0.5, 0.0, 1.0], "support_vectors": listed(vectors), "rho": listed(rho),
        "vectors_per_class": sizes, "coefficients": listed(factors), "classlabels_ints": list(range(20, 20 + count)),
    }  # fmt: skip
    check("SVMClassifier", [x], [labels, duels], tol=1e-4, **attrs)
    # the rounds end when no gradient is farther than 0.005 / count from their mean
    check("SVMClassifier", [x], [labels, chances], tol=0.02, prob_a=listed(a), prob_b=listed(b), **attrs)
