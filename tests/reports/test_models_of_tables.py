"""Forests of `ai.onnx.ml` against walks of every row through every tree: random comparisons, NaN and infinity."""

from __future__ import annotations

import math
import shutil
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from relay_lite.frontend import from_onnx
from relay_lite.ir.errors import GraphError
from relay_lite.ir.reference import run
from tests.nonempty import nonempty
from tests.reports.everywhere import Array, node_model, of_onnx

pytestmark = [pytest.mark.skipif(shutil.which("g++") is None, reason="needs gcc and g++"),
              pytest.mark.one_in(3)]  # fmt: skip
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
ML = "ai.onnx.ml"
COLUMNS = 5


@dataclass
class Tree:
    """A node: a comparison with two subtrees, or what a leaf says, pairs of target and value."""

    said: list[tuple[int, float]] = field(default_factory=list)
    feature: int = 0
    mode: str = "LEAF"
    value: float = 0.0
    members: tuple[float, ...] = ()
    missing: int = 0
    sides: tuple[Tree, ...] = ()


def drawn(rng: np.random.Generator, depth: int, modes: list[str], say: Any) -> Tree:
    """A random tree, as unbalanced as chance has it; `say(rng)` is what a leaf says."""
    if depth == 0 or (depth < 4 and rng.random() < 0.3):
        return Tree(say(rng))
    sides = tuple(drawn(rng, depth - 1, modes, say) for _ in range(2))
    value = float(rng.integers(-2, 3)) if rng.random() < 0.8 else float(np.float32(rng.normal()))
    members = tuple(float(v) for v in rng.integers(-3, 4, rng.integers(0, 6)))
    feature, missing = int(rng.integers(COLUMNS)), int(rng.integers(2))
    return Tree([], feature, modes[rng.integers(len(modes))], value, members, missing, sides)


def leaf(tree: Tree, row: Array) -> list[tuple[int, float]]:
    """What the leaf says that a row comes to: NaN goes where the node says that it does."""
    while tree.mode != "LEAF":
        x = float(row[tree.feature])
        compared = {
            "BRANCH_LEQ": x <= tree.value, "BRANCH_LT": x < tree.value, "BRANCH_GTE": x >= tree.value,
            "BRANCH_GT": x > tree.value, "BRANCH_EQ": x == tree.value, "BRANCH_NEQ": x != tree.value,
            "BRANCH_MEMBER": x in tree.members,
        }  # fmt: skip
        goes = bool(tree.missing) if math.isnan(x) else compared[tree.mode]
        tree = tree.sides[1] if goes else tree.sides[0]
    return tree.said


def rows(rng: np.random.Generator, dtype: str, count: int = 16) -> Array:
    """Small numbers that often equal thresholds, and special ones."""
    x = np.where(rng.random((count, COLUMNS)) < 0.7, rng.integers(-3, 4, (count, COLUMNS)), rng.normal(size=(count, 5)))
    special = rng.random(x.shape)
    for at, value in enumerate([np.nan, np.inf, -np.inf, -0.0]):
        x = np.where((special > 0.05 * at) & (special < 0.05 * (at + 1)), value, x)
    return x.astype(dtype)


def attributes(trees: list[Tree], what: str, rng: np.random.Generator) -> dict[str, Any]:
    """The old operators' attributes, with ids of nodes in a random order."""
    out: dict[str, list[Any]] = {
        f"nodes_{n}": []
        for n in ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids",
                  "missing_value_tracks_true")
    }  # fmt: skip
    out.update({f"{what}_{n}": [] for n in ("treeids", "nodeids", "ids", "weights")})
    for t, root in enumerate(trees):
        nodes, todo = list[Tree](), [root]
        while todo:
            nodes.append(todo.pop())
            todo += nodes[-1].sides
        ids = {id(n): int(k) for n, k in zip(nodes, rng.permutation(len(nodes)) + 3, strict=True)}
        for n in nodes:
            false, true = (ids[id(s)] for s in n.sides) if n.sides else (0, 0)
            row = (t * 7, ids[id(n)], n.feature, n.value, n.mode, true, false, n.missing)
            for name, value in zip(list(out)[:8], row, strict=True):
                out[name].append(value)
            for target, value in n.said:
                for name, item in zip(("treeids", "nodeids", "ids", "weights"), (t * 7, ids[id(n)], target, value),
                                      strict=True):  # fmt: skip
                    out[f"{what}_{name}"].append(item)
    return out


def every_target(count: int) -> Any:
    return lambda rng: [(t, float(np.float32(rng.normal()))) for t in range(count)]


def some_targets(count: int) -> Any:
    return lambda rng: [(int(t), float(np.float32(rng.normal()))) for t in rng.integers(0, count, rng.integers(1, 3))]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("seed", range(12))
def test_regressors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    targets, aggregate = int(rng.integers(1, 4)), ["SUM", "AVERAGE", "MIN", "MAX"][seed % 4]
    say = every_target(targets) if aggregate in ("MIN", "MAX") or seed % 3 else some_targets(targets)
    modes = [MODES[seed % 6]] if seed % 2 else MODES
    trees = [drawn(rng, int(rng.integers(0, 7)), modes, say) for _ in range(int(rng.integers(1, 9)))]
    x = rows(rng, ["float32", "float64", "int64"][seed % 3] if seed % 3 < 2 else "float32")
    base = [float(np.float32(v)) for v in rng.normal(size=targets)] if seed % 2 else []
    want = np.zeros((len(x), targets))
    for i, row in enumerate(x):
        for target in range(targets):
            said = [v for tree in trees for t, v in leaf(tree, row) if t == target]
            join = {"SUM": sum, "AVERAGE": lambda s: sum(s) / len(trees), "MIN": min, "MAX": max}[aggregate]
            want[i, target] = join(said) + (base[target] if base else 0)
    attrs = attributes(trees, "target", rng) | ({"base_values": base} if base else {})
    model = node_model("TreeEnsembleRegressor", [x], domain=(ML, 3), n_targets=targets, aggregate_function=aggregate,
                       **attrs)  # fmt: skip
    for who, (got,) in nonempty(of_onnx(model, [x])):
        assert got.dtype == np.float32
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=who)


def transformed(row: Array, name: str) -> Array:
    """A row of scores, as ONNX's page has it."""
    if name == "LOGISTIC":
        return np.array([1 / (1 + math.exp(-v)) for v in row])
    if name.startswith("SOFTMAX"):
        kept = [v != 0 or name == "SOFTMAX" for v in row]
        parts = [math.exp(v) if k else 0.0 for v, k in zip(row, kept, strict=True)]
        return np.array([p / sum(parts) for p in parts]) if any(kept) else np.full(len(row), 0.5)
    return row


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(8))
def test_classifiers(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    count, transform = [2, 3, 5][seed % 3], ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"][seed % 4]
    trees = [drawn(rng, int(rng.integers(0, 6)), MODES, every_target(count)) for _ in range(4)]
    x, base = rows(rng, "float32"), [float(v) for v in rng.integers(-1, 2, count)]
    names = [int(v) for v in rng.permutation(50)[:count]]
    attrs = attributes(trees, "class", rng) | {"classlabels_int64s": names, "post_transform": transform}
    model = node_model("TreeEnsembleClassifier", [x], 2, domain=(ML, 1), base_values=base, **attrs)
    scores = [[base[c] + sum(v for t in trees for k, v in leaf(t, row) if k == c) for c in range(count)] for row in x]
    want = np.array([transformed(np.array(row), transform) for row in scores])
    for who, (label, got) in nonempty(of_onnx(model, [x])):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=who)
        assert label.dtype == np.int64 and label.tolist() == [names[int(np.argmax(row))] for row in scores], who


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
def test_one_score_for_two_classes(positive: bool, transform: str) -> None:
    rng = np.random.default_rng(7 + positive)
    say = lambda rng: [(0, abs(float(rng.normal())) / 4 if positive else float(rng.normal()))]  # noqa: E731
    trees, x = [drawn(rng, 4, MODES, say) for _ in range(3)], rows(rng, "float32")
    score = [sum(v for t in trees for _, v in leaf(t, row)) for row in x]
    attrs = attributes(trees, "class", rng) | {"classlabels_int64s": [4, 9], "post_transform": transform}
    if transform == "NONE":
        want = [[1 - s if positive else -s, s] for s in score]
    else:
        want = [[1 / (1 + math.exp(s)), 1 / (1 + math.exp(-s))] for s in score]
    for who, (label, got) in nonempty(
        of_onnx(node_model("TreeEnsembleClassifier", [x], 2, domain=(ML, 3), **attrs), [x])
    ):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=who)
        assert label.tolist() == [9 if s > (0.5 if positive else 0) else 4 for s in score], who


def ensemble(trees: list[Tree], dtype: str) -> dict[str, Any]:
    """The attributes of the new operator."""
    inner, said, members = list[Tree](), list[tuple[int, float]](), list[float]()

    def count(tree: Tree) -> None:
        if tree.sides:
            inner.append(tree)
            for side in tree.sides:
                count(side)

    roots = []
    for tree in trees:
        roots.append(len(inner))
        count(tree)
    at, columns = {id(t): k for k, t in enumerate(inner)}, list[tuple[int, ...]]()
    for t in inner:
        row = list[int]()
        for side in (t.sides[1], t.sides[0]):
            if side.sides:
                row += [at[id(side)], 0]
            else:
                row += [len(said), 1]
                said += side.said
        columns.append(tuple(row))
        members += [*t.members, math.nan] if t.mode == "BRANCH_MEMBER" else []
    numbers = [[*MODES, "BRANCH_MEMBER"].index(t.mode) for t in inner]
    names = ("nodes_truenodeids", "nodes_trueleafs", "nodes_falsenodeids", "nodes_falseleafs")
    tensors = {
        "nodes_splits": np.array([t.value for t in inner], dtype), "nodes_modes": np.array(numbers, "uint8"),
        "leaf_weights": np.array([v for _, v in said], dtype), "membership_values": np.array(members, dtype),
    }  # fmt: skip
    return {
        "tree_roots": roots, "nodes_featureids": [t.feature for t in inner],
        "nodes_missing_value_tracks_true": [t.missing for t in inner], "leaf_targetids": [t for t, _ in said],
        **{n: [c[k] for c in columns] for k, n in enumerate(names)},
        **{n: numpy_helper.from_array(v, n) for n, v in tensors.items() if v.size},
    }  # fmt: skip


@pytest.mark.one_in(2)
@pytest.mark.parametrize("seed", range(8))
def test_the_new_operator(seed: int) -> None:
    rng, dtype = np.random.default_rng(200 + seed), ["float32", "float64"][seed % 2]
    targets = int(rng.integers(1, 4))
    say = lambda rng: [(int(rng.integers(targets)), float(np.float32(rng.normal())))]  # noqa: E731
    modes = [*MODES, "BRANCH_MEMBER"] if seed % 4 else ["BRANCH_MEMBER"]
    trees = [drawn(rng, 4 + k, modes, say) for k in range(3)]
    x, average = rows(rng, dtype), seed % 3 == 0
    want = np.zeros((len(x), targets))
    for i, row in enumerate(x):
        for tree in trees:
            for target, value in leaf(tree, row):
                want[i, target] += value / (3 if average else 1)
    attrs = ensemble(trees, dtype)
    model = node_model("TreeEnsemble", [x], domain=(ML, 5), n_targets=targets, aggregate_function=0 if average else 1,
                       **attrs)  # fmt: skip
    for who, (got,) in nonempty(of_onnx(model, [x])):
        assert got.dtype == dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=who)


@pytest.mark.parametrize(("number", "name"), [(1, "SOFTMAX"), (2, "LOGISTIC"), (3, "SOFTMAX_ZERO")])
def test_numbers_of_transforms_are_those_of_the_page(number: int, name: str) -> None:
    rng = np.random.default_rng(300)
    tree, x = Tree([], 0, "BRANCH_LT", 0.5, (), 0, (Tree([(0, 1.0)]), Tree([(1, 2.0)]))), rows(rng, "float32", 6)
    model = node_model("TreeEnsemble", [x], domain=(ML, 5), n_targets=3, post_transform=number,
                       **ensemble([tree], "float32"))  # fmt: skip
    want = []
    for row in x:
        said = dict(leaf(tree, row))
        want.append(transformed(np.array([said.get(k, 0.0) for k in range(3)]), name))
    for who, (got,) in nonempty(of_onnx(model, [x])):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6, err_msg=who)


STUMP: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.0, 0.0, 0.0], "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0],
    "target_weights": [1.0, 2.0], "n_targets": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"nodes_falsenodeids": [1, 0, 0]}, "every tree must have one node that no other leads to"),
        ({"nodes_falsenodeids": [7, 0, 0]}, "children must be other nodes of their tree, got tree=0 child=7"),
        ({"nodes_featureids": [9, 0, 0]}, "features must be in the input"),
        ({"nodes_modes": ["BRANCH", "LEAF", "LEAF"]}, "nodes_modes are BRANCH_LEQ"),
        ({"nodes_values": [0.0]}, "all attributes of nodes must be equally long"),
        ({"target_ids": [0, 1]}, "targets must be in 0 to 0"),
        ({"target_nodeids": [0, 2]}, "only leaves may say something"),
        ({"post_transform": "SOFTMAX"}, "of one target post_transform must be NONE or PROBIT"),
        ({"aggregate_function": "MEDIAN"}, "aggregate_function is one of"),
        ({"aggregate_function": "MIN", "n_targets": 2}, "every row must get a score for a target"),
    ],
)
def test_what_is_no_forest_is_refused(changed: dict[str, Any], said: str) -> None:
    x = np.zeros((2, 3), "float32")
    from_onnx(node_model("TreeEnsembleRegressor", [x], domain=(ML, 3), **STUMP))
    with pytest.raises(GraphError, match=said):
        from_onnx(node_model("TreeEnsembleRegressor", [x], domain=(ML, 3), **STUMP | changed))


def test_a_way_that_does_not_end_is_refused() -> None:
    ring = dict(STUMP, nodes_treeids=[0] * 4, nodes_nodeids=[0, 1, 2, 3], nodes_featureids=[0] * 4,
                nodes_values=[0.0] * 4, nodes_modes=["BRANCH_LEQ"] * 3 + ["LEAF"], nodes_truenodeids=[1, 2, 1, 0],
                nodes_falsenodeids=[3, 3, 3, 0], target_nodeids=[3, 3])  # fmt: skip
    with pytest.raises(GraphError, match="a tree must have no way back to an inner node"):
        from_onnx(node_model("TreeEnsembleRegressor", [np.zeros((2, 3), "float32")], domain=(ML, 3), **ring))


def of_texts() -> onnx.ModelProto:
    """A classifier whose labels are strings, with a map of its probabilities, and an array of strings."""
    attrs = {name.replace("target_", "class_"): value for name, value in STUMP.items() if name != "n_targets"}
    attrs |= {"class_ids": [0, 1], "classlabels_strings": ["no", "yes"], "domain": ML}
    nodes = [
        helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "scores"], **attrs),
        helper.make_node("ZipMap", ["scores"], ["map"], domain=ML, classlabels_strings=["no", "yes"]),
        helper.make_node("ArrayFeatureExtractor", ["names", "at"], ["name"], domain=ML),
        helper.make_node("ArgMax", ["scores"], ["at"], axis=1),
    ]
    names = helper.make_tensor("names", onnx.TensorProto.STRING, [2], [b"no", b"yes"])
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [3, 2])
    outputs = [onnx.ValueInfoProto(name=n) for n in ("label", "map", "name")]
    graph = helper.make_graph([nodes[k] for k in (0, 1, 3, 2)], "g", [x], outputs, [names])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid(ML, 3)])


def test_numbers_are_asked_for_where_a_model_gives_strings() -> None:
    model = of_texts()
    graph, _ = from_onnx(model, outputs=["scores", "at"])
    assert run(graph, {"x": np.array([[-1, 0], [1, 0], [0, 0]], "float32")})[1].tolist() == [[0], [1], [0]]
    for output, said in {
        "label": "the labels of ai.onnx.ml::TreeEnsembleClassifier 'label' are strings: only numbers are computed",
        "map": "ZipMap: maps are not computed: export with zipmap=False, or ask for the tensor that it reads",
        "name": "it reads 'names', which holds strings: only numbers are computed",
        "nobody": "`outputs` are names of what nodes give",
    }.items():
        with pytest.raises(GraphError, match=said):
            from_onnx(model, outputs=[output])
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.STRING
    with pytest.raises(GraphError, match="ONNX input 'x': only numbers are computed, so encode texts before"):
        from_onnx(model)
