"""Every network, compiled for target `c`, gives what its definition gives in float64.

Images are small, since a network has as many different kernels as with large ones; its widths are kept, but for those
of `bert-base` and `dcgan`.  Programs are the default ones, or drawn at random and handed over as records are.
The limits are a fifth of what is promised (1e-4 of the largest value, 1e-3 with F(4,3)).
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import ansor
from ansor.sketch import generate_sketches
from relay_lite import reference
from relay_lite.compiler.build import build
from relay_lite.ir.module import IRModule
from relay_lite.runtime.graph_executor import GraphModule
from relay_lite.runtime.library import NetworkLibrary
from relay_lite.testing import get_workload
from relay_lite.testing.live import calm_scores, live_inputs, live_params
from relay_lite.tuning.tune_network import has_large_tiles
from tests.drawn_programs import drawn_program
from tests.relay_lite.test_build import poison
from tests.relay_lite.test_networks import SMALL

Array = np.ndarray[Any, np.dtype[Any]]
Arrays = dict[str, Array]

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")

LIMIT, LARGE_TILES_LIMIT = 2e-5, 1e-4
CONTRAST = 2e-2

SMALL_BERT = {"num_layers": 2, "seq_len": 13, "hidden": 48, "num_heads": 3, "ffn": 72}

DEFAULT: dict[str, dict[str, Any]] = {
    "resnet-18/NHWC": {"batch_size": 2, "image_shape": (40, 33, 3)},
    "resnet-50/NHWC": {"image_shape": (33, 40, 3)},
    "resnet3d-18/NHWC": {"batch_size": 2, "image_shape": (3, 33, 34, 3)},
    "mobilenet/NHWC": {"batch_size": 2, "image_shape": (33, 40, 3)},
    "squeezenet_v1.1/NHWC": {"image_shape": (37, 45, 3)},
    "inception_v3/NHWC": {"image_shape": (75, 83, 3)},
    "densenet-121/NHWC": {"batch_size": 2, "image_shape": (33, 37, 3)},
    "dcgan/NHWC": {"batch_size": 2, "image_shape": (32, 48, 3), "ngf": 8},
    "mlp/NHWC": {"batch_size": 3},
    "bert-base/NHWC": {"batch_size": 2, "vocab_size": 31, **SMALL_BERT},
    "lstm/NHWC": {"batch_size": 3, "iterations": 3, "num_hidden": 11},
    "mobilenet_v2/NHWC": {"batch_size": 2, "image_shape": (33, 40, 3)},
    **{f"{name}/NHWC": {"batch_size": 2, **SMALL[name]} for name in list(SMALL)[1:]},
    "gpt2/NCHW": SMALL["gpt2"],
}
DRAWN: dict[str, dict[str, Any]] = {
    "resnet-18/NCHW": {"batch_size": 2, "image_shape": (3, 40, 33)},
    "mobilenet/NCHW": {"image_shape": (3, 33, 40)},
    "resnet-34/NHWC": {"image_shape": (33, 35, 3)},
    "vgg-16/NHWC": {"batch_size": 2, "image_shape": (32, 39, 3)},
    "bert-base/NHWC": {"batch_size": 2, **SMALL_BERT},
    "dqn/NCHW": {"batch_size": 3, "image_shape": (4, 36, 39)},
}


LONG = {"resnet-18/NCHW", "gpt2/NHWC", "llama-135m/NHWC", "bert-base/NHWC"}
"""Networks of many kernels, or large ones, of kinds that others have too: for `make test-long`."""
SLOW = {
    "resnet-18/NHWC", "mobilenet_v2/NHWC",
    "resnet-50/NHWC", "resnet3d-18/NHWC", "inception_v3/NHWC", "resnet-34/NHWC", "vgg-16/NHWC", "mobilenet/NCHW",
    "mobilenet/NHWC", "gpt2/NCHW",
    "densenet-121/NHWC", "vit_b_16/NHWC", "deit_tiny/NHWC",
    "squeezenet_v1.1/NHWC",
}  # fmt: skip
"""Networks whose operators those of `LONG` have, too: for `make fuzz`."""


def some(networks: Iterable[str]) -> list[Any]:
    """The networks as parameters; marked where they are long."""
    marks = dict.fromkeys(LONG, pytest.mark.long) | dict.fromkeys(SLOW, pytest.mark.slow)
    return [pytest.param(n, marks=marks.get(n, ())) for n in networks]


class Case:
    """A network with weights and inputs that tell results apart, and its results in float64, one row an example."""

    def __init__(self, network: str, options: dict[str, Any]) -> None:
        name, layout = network.split("/")
        rng = np.random.default_rng(len(network))
        self.graph, params = get_workload(name, layout=layout, **options)
        params = live_params(self.graph, params, rng)
        self.runs = [live_inputs(self.graph, params, rng) for _ in range(1 if options.get("batch_size", 1) > 1 else 2)]
        self.params = calm_scores(self.graph, params, self.runs[0])
        expected = [reference.run(self.graph, inputs, self.params, dtype="float64") for inputs in self.runs]
        self.expected: Array = np.concatenate(expected)

    def check(self, library: NetworkLibrary) -> None:
        """The compiled network gives the expected results, which differ from example to example."""
        module = GraphModule(library["default"]())
        rows = []
        for inputs in self.runs:
            poison(module)
            module.run(**inputs)
            rows.append(module.get_output(0).numpy().copy())
        got, largest = np.concatenate(rows), np.abs(self.expected).max()
        assert got.dtype == np.float32 and got.shape == self.expected.shape
        assert np.abs(self.expected[0] - self.expected[-1]).max() > CONTRAST * largest
        assert library.graph is not None
        limit = LARGE_TILES_LIMIT if has_large_tiles(library.graph) else LIMIT
        np.testing.assert_allclose(got, self.expected, rtol=0, atol=limit * largest)


@pytest.mark.long
@pytest.mark.parametrize("network", some(DEFAULT))
def test_networks_with_default_programs(network: str) -> None:
    case = Case(network, DEFAULT[network])
    case.check(build(case.graph, case.params, "c"))


def drawn_records(graph: IRModule, params: Arrays, rng: np.random.Generator) -> list[Any]:
    """A record for every task of a network, of a program drawn from one of its sketches."""
    records = []
    for task in ansor.extract_tasks(graph, params, "c")[0]:
        sketches = generate_sketches(task.compute_dag, task.target)
        state = drawn_program(sketches[int(rng.integers(len(sketches)))], task.target, task.hardware_params, rng)
        assert state is not None
        records.append((ansor.MeasureInput(task, state), ansor.MeasureResult((1.0,), 0, "", 1.0, 0)))
    return records


@pytest.mark.parametrize("network", some(DRAWN))
def test_networks_with_drawn_programs(network: str, caplog: pytest.LogCaptureFixture) -> None:
    """No group falls back on a default program, and constant weights lie as the programs read them."""
    case = Case(network, DRAWN[network])
    records = drawn_records(case.graph, case.params, np.random.default_rng(len(network)))
    with caplog.at_level(logging.WARNING), ansor.ApplyHistoryBest(records):
        library = build(case.graph, case.params, "c")
    assert not [r for r in caplog.records if r.name == "relay_lite"]
    assert any(name.endswith("_packed") for name in library.kernels)
    case.check(library)
