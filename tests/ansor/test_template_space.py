"""Configuration spaces: what the policies list, indices and digits, and that every choice gives a right program."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import te_lite as te
from ansor import autotvm
from ansor.autotvm import ConfigSpace, FallbackConfigEntity, SplitEntity, TemplateError
from ansor.autotvm.config import ConfigEntity
from te_lite.lowering.lower import lower
from te_lite.meaning.interp import run
from tests.amount import examples
from tests.nonempty import nonempty
from tests.oracle import Oracle


def sizes(extent: int, policy: str = "factors", **options: Any) -> list[list[int]]:
    """The choices of one split."""
    space = ConfigSpace()
    space.define_split("t", extent, policy, **options)
    return [list(e.size) for e in space.space_map["t"].entities]


@pytest.mark.parametrize(
    ("extent", "parts", "policy", "count"),
    [
        (256, 3, "factors", 45), (256, 3, "power2", 45), (256, 3, "verbose", 45), (224, 3, "factors", 63),
        (224, 3, "power2", 36), (224, 3, "verbose", 84), (1 << 25, 4, "factors", 3276), (56, 2, "factors", 8),
    ],
)  # fmt: skip
def test_known_sizes(extent: int, parts: int, policy: str, count: int) -> None:
    """The sizes that autotvm's own tests state."""
    found = sizes(extent, policy, num_outputs=parts)
    assert len(found) == len({tuple(f) for f in found}) == count


@given(st.integers(1, 60), st.integers(1, 3), st.sampled_from(["factors", "power2", "verbose"]), st.booleans())
@examples(150)
def test_split_lists_all_there_are(extent: int, parts: int, policy: str, no_tail: bool) -> None:
    """Against trying every list of factors."""
    divisors = [d for d in range(1, extent + 1) if extent % d == 0]
    powers = [d for d in range(1, extent + 1) if d & (d - 1) == 0]
    factors = {"factors": divisors, "power2": powers, "verbose": sorted({*divisors, *powers})}[policy]
    expected = []
    for inner in itertools.product(factors, repeat=parts - 1):
        product = math.prod(inner)
        if extent % product == 0 or (not no_tail and product < extent):
            expected.append([-1, *reversed(inner)])
    assert sizes(extent, policy, num_outputs=parts, no_tail=no_tail) == expected


def test_split_options() -> None:
    assert sizes(28, num_outputs=2) == [[-1, d] for d in (1, 2, 4, 7, 14, 28)]
    assert sizes(28, num_outputs=2, max_factor=7) == [[-1, d] for d in (1, 2, 4, 7)]
    assert sizes(28, num_outputs=3, filter=lambda e: e.size[1] * e.size[2] == 4) == [[-1, 4, 1], [-1, 2, 2], [-1, 1, 4]]
    assert sizes(30, "candidate", candidate=[[-1, 3], [10, 4]]) == [[-1, 3], [-1, 4]]
    assert sizes(7, num_outputs=1) == [[-1]]
    assert SplitEntity((-1, 4, 2)).lengths(30) == (4, 4, 2)


def choices(define: str, policy: str, axes: int = 3, **options: Any) -> list[Any]:
    """The choices of a knob over some axes, as they stand in records."""
    space = ConfigSpace()
    given = [space.axis(k + 2) for k in range(axes)]
    options = {key: value(given) if callable(value) else value for key, value in options.items()}
    getattr(space, define)("k", given, policy, **options)
    return [e.to_json()[1] for e in space.space_map["k"].entities]


def test_reorder_policies() -> None:
    assert choices("define_reorder", "identity") == [[0, 1, 2]]
    assert len(choices("define_reorder", "all", 4)) == 24
    assert choices("define_reorder", "interval_all", 4, interval=(1, 3)) == [[0, 1, 2, 3], [0, 2, 1, 3]]
    swapped = choices("define_reorder", "candidate", candidate=lambda a: [[a[2], a[0], a[1]], [0, 1, 2]])
    assert swapped == [[2, 0, 1], [0, 1, 2]]
    woven = choices("define_reorder", "interleave", 6, spatial=lambda a: [a[0:2], a[2:4]], reduce=lambda a: [a[4:6]])
    assert woven == [[0, 2, 4, 1, 3, 5]]


def test_annotate_policies() -> None:
    assert choices("define_annotate", "none", 2) == [["none", "none"]]
    assert choices("define_annotate", "unroll", 2) == [["unroll", "unroll"]]
    assert choices("define_annotate", "vec", 2) == [["none", "vec"]]
    assert len(choices("define_annotate", "try_unroll")) == 8
    assert len(choices("define_annotate", "try_vec")) == 4
    assert len(choices("define_annotate", "try_unroll_vec")) == 8 + 3 * 4
    assert choices("define_annotate", "bind_gpu", 2) == [["blockIdx.x", "threadIdx.x"]]
    five = [["fuse", "blockIdx.y", "blockIdx.x", "threadIdx.y", "threadIdx.x"]]
    assert choices("define_annotate", "bind_gpu", 5) == five
    virtual = [["blockIdx.x", "vthread", "threadIdx.x"]]
    assert choices("define_annotate", "bind_gpu_virtual", 3) == virtual
    assert choices("define_annotate", "locate_cache", 3, num_anchor=2) == [[0, 1], [0, 2], [1, 2]]


# ---------------------------------------------------------------------------------------------- index and digits


def vta_space(output: int, inputs: int, outputs: int) -> ConfigSpace:
    """The seven knobs of the packed convolution."""
    space = ConfigSpace()
    for name, extent in (("b", 1), ("h", output), ("w", output), ("ci", inputs), ("co", outputs)):
        space.define_split(f"tile_{name}", extent, num_outputs=2)
    space.define_knob("oc_nthread", [1, 2])
    space.define_knob("h_nthread", [1, 2])
    return space


@pytest.mark.parametrize(
    ("shape", "length", "index", "knobs"),
    [
        ((56, 4, 4), 2304, None, None), ((14, 16, 16), 1600, 575, (14, 14, 1, 4, 2, 1)),
        ((14, 8, 16), 1280, 463, (14, 14, 1, 4, 2, 1)), ((14, 8, 16), 1280, 526, (7, 14, 1, 8, 2, 1)),
        ((7, 16, 32), 480, 203, (7, 7, 1, 16, 2, 1)), ((7, 32, 32), 576, 243, (7, 7, 1, 16, 2, 1)),
    ],
)  # fmt: skip
def test_published_indices(shape: Any, length: int, index: int | None, knobs: Any) -> None:
    """Sizes of the spaces, and indices of published records, of the ResNet-18 convolutions."""
    space = vta_space(*shape)
    assert len(space) == length
    if index is not None:
        values = [value[1] if kind == "sp" else value for _, kind, value in space.get(index).values()]
        assert tuple(values[1:]) == knobs


@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.data())
@examples(60)
def test_index_and_digits_are_inverse(dims: list[int], data: Any) -> None:
    space = ConfigSpace()
    for k, n in enumerate(dims):
        space.define_knob(f"k{k}", list(range(n)))
    index = data.draw(st.integers(0, len(space) - 1))
    digits = space.point2knob(index)
    assert space.knob2point(digits) == index
    assert [e.val for _, e in space.get(index).items()] == digits
    assert space.index_of(space.get(index)) == index
    whole = np.arange(len(space))
    assert space.digits(whole)[index].tolist() == digits
    np.testing.assert_array_equal(space.indices(space.digits(whole)), whole)


def test_a_filter_over_several_knobs() -> None:
    space = ConfigSpace()
    space.define_knob("x", [1, 2, 3])
    space.define_knob("y", [1, 2, 3, 4])
    space.multi_filter(lambda config: config["x"].val * config["y"].val <= 4)
    valid = [k for k in range(12) if (k % 3 + 1) * (k // 3 + 1) <= 4]
    assert len(space) == len(valid) == 7 and space.range_length == 12
    assert [k for k in range(-1, 13) if space.is_index_valid(k)] == valid
    assert sorted(space.sample_ints(100, np.random.default_rng(0)).tolist()) == valid


# --------------------------------------------------------------------------------------------- configurations


def test_records_of_configurations() -> None:
    space = ConfigSpace()
    axes = space.define_split("s", 12, num_outputs=3)
    space.define_reorder("r", axes, "all")
    space.define_annotate("a", axes, "try_unroll_vec")
    space.define_knob("o", [1.5, "x", None, True])
    rng = np.random.default_rng(0)
    for index in nonempty(space.sample_ints(40, rng).tolist()):
        config = space.get(index)
        again = ConfigEntity.from_json_dict(config.to_json_dict())
        assert again == config and again.index == index and hash(again) == hash(config)
        assert len(config.get_flatten_feature()) == 3 + 3 + 3 * 11 + 1


def test_flat_features() -> None:
    space = ConfigSpace()
    axes = space.define_split("s", 12, num_outputs=2)
    space.define_annotate("a", axes, "vec")
    space.define_knob("n", [4, 8])
    space.define_knob("t", ["u", "v"])
    last = space.get(len(space) - 1)
    assert last.get_flatten_feature() == [1.0, 12.0, 1.0, *[0.0] * 10, 0.0, 0.0, 1.0, *[0.0] * 8, 8.0, 1.0]


def test_fallback_split() -> None:
    """The examples of the specification."""

    def split(extent: int, limits: list[int]) -> list[int]:
        config = FallbackConfigEntity()
        config.define_split("t", extent, num_outputs=len(limits))
        assert config["t"].to_json() == ["sp", [-1, *[1] * (len(limits) - 1)]]
        config.fallback_split("t", limits)
        return list(config["t"].lengths(extent))

    assert split(128, [-1, 8, 4]) == [4, 8, 4]
    assert split(49, [-1, 8, 4]) == [7, 7, 1]
    assert split(48, [-1, -1, 5]) == [1, 12, 4]
    with pytest.raises(TemplateError, match="a limit admits no length"):
        split(49, [-1, 1, 0])


@autotvm.template("test.matmul")
def matmul(n: int, m: int, length: int) -> Any:
    """A product of matrices with a knob of every kind."""
    cfg = autotvm.get_config()
    a, b = te.placeholder((n, length), name="A"), te.placeholder((length, m), name="B")
    k = te.reduce_axis((0, length), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    s = te.create_schedule(c.op)
    y, x = s[c].op.axis
    outer_y = cfg.define_split("tile_y", y, num_outputs=3, policy="verbose")
    outer_x = cfg.define_split("tile_x", x, num_outputs=2)
    inner = cfg.define_split("tile_k", k, num_outputs=2)
    order = [outer_y[0], outer_x[0], inner[0], outer_y[1], outer_y[2], inner[1], outer_x[1]]
    cfg.define_reorder("order", order, "interval_all", interval=(2, 5))
    cfg.define_annotate("ann", [outer_y[2], inner[1], outer_x[1]], "try_unroll_vec")
    yo, ym, yi = cfg["tile_y"].apply(s, c, y)
    xo, xi = cfg["tile_x"].apply(s, c, x)
    ko, ki = cfg["tile_k"].apply(s, c, s[c].op.reduce_axis[0])
    cfg["order"].apply(s, c, [yo, xo, ko, ym, yi, ki, xi])
    lengths = [cfg["tile_y"].size[2], cfg["tile_k"].size[1], cfg["tile_x"].size[1]]
    if cfg["ann"].anns[1] == "vec":
        cfg.raise_error("a reduction is not vectorised")
    cfg["ann"].apply(s, c, [yi, ki, xi], axis_lens=lengths, max_unroll=8)
    return s, [a, b, c]


def test_the_loops_of_a_split_have_its_lengths() -> None:
    """Also where the last outer iterations are guarded."""
    task = autotvm.create("test.matmul", (10, 12, 7), "c")
    drawn = map(task.config_space.get, task.config_space.sample_ints(30, np.random.default_rng(3)).tolist())
    for config in nonempty(c for c in drawn if c["ann"].anns[1] != "vec" and "unroll" not in c["ann"].anns):
        schedule, tensors = task.instantiate(config)
        state = te.ComputeDAG(tensors).infer_bound_from_state(schedule.state)
        found = {it.name: it.extent for it in state.stages[-1].iters}
        expected = [*config["tile_y"].lengths(10), *config["tile_x"].lengths(12), *config["tile_k"].lengths(7)]
        assert sorted(found.values()) == sorted(expected), config


def test_every_choice_computes_the_same() -> None:
    """Random configurations, lowered and interpreted; tails, orders, unrolling and vectors are among them."""
    task = autotvm.create("test.matmul", (10, 6, 7), "c")
    assert task.flop == 2 * 10 * 6 * 7
    rng, ran, refused = np.random.default_rng(0), 0, set()
    oracle = None
    for index in task.config_space.sample_ints(60, rng).tolist():
        try:
            schedule, tensors = task.instantiate(task.config_space.get(index))
        except autotvm.InstantiationError as error:
            refused.add(str(error).split(",")[0])
            continue
        oracle = (
            oracle
            if oracle is not None and oracle.dag.tensors == tuple(tensors)
            else Oracle(te.ComputeDAG(tensors), np.random.default_rng(1))
        )
        assert oracle.mismatch(lower(schedule.state, tensors), run) is None, index
        ran += 1
    assert ran >= 20
    law = "annotate: a loop of more than 8 iterations is unrolled"
    assert "a reduction is not vectorised" in refused and refused <= {"a reduction is not vectorised", law}


REFUSED: list[tuple[Any, str]] = [
    (lambda s: s.define_split("t", 8, policy="thirds", num_outputs=2), "the policy must be one of factors, power2"),
    (lambda s: s.define_split("t", 8), "num_outputs must be at least 1"),
    (lambda s: s.define_split("t", 8, num_output=2), "the options of this policy are num_outputs"),
    (lambda s: s.define_split("t", "x", num_outputs=2), "an axis is a length, op.axis[k] or the axis of a knob"),
    (lambda s: s.define_split("t", 8, num_outputs=2, filter=lambda e: False), "no split is left"),
    (lambda s: s.define_split("t", s.define_split("s", 8, num_outputs=2)[0], num_outputs=2), "must be known"),
    (lambda s: s.define_split("t", 8, "candidate", candidate=[[-1, 0]]), "a candidate is a list of lengths"),
    (lambda s: s.define_split("t", 8, "candidate", candidate=[[-1, 2], [-1, 2, 2]]), "lists of one length"),
    (lambda s: s.define_reorder("r", [2, 3], "candidate", candidate=[[0, 0]]), "an order names every axis once"),
    (lambda s: s.define_reorder("r", [2] * 9, "all"), "all orders are listed of at most 8 of the axes"),
    (lambda s: s.define_annotate("a", [2], "bind_gpu"), "at least 2 loops are needed to bind"),
    (lambda s: s.define_knob("k", []), "at least one value is needed"),
    (lambda s: s.define_knob("k", [object()]), "a value is a number, a text, True, False or None"),
    (lambda s: s["u"], "the knobs are none"),
    (lambda s: s.get(1), "an index lies in 0 .. 0"),
]


@pytest.mark.parametrize(("call", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_refusals(call: Any, text: str) -> None:
    with pytest.raises(TemplateError) as caught:
        call(ConfigSpace())
    assert text in str(caught.value)
