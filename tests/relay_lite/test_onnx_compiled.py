"""Imported networks all the way: passes, layouts, tasks, C programs; onnxruntime is the oracle."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import ansor
import relay_lite as relay
from relay_lite.frontend import from_onnx
from relay_lite.ir.reference import run
from tests.relay_lite.onnx_models import FAMILIES, Builder, onnxruntime_run, operators


def imported(family: str, opset: int) -> tuple[relay.IRModule, Builder, np.ndarray]:
    """The graph, the builder with its inputs, and the result that is wanted."""
    b = Builder(opset)
    model = b.model(FAMILIES[family](b))
    module, _ = from_onnx(model, shape={name: value.shape for name, value in b.feeds.items()})
    return module, b, onnxruntime_run(model, b.feeds)[0]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a C compiler")
@pytest.mark.parametrize(
    "family",
    [
        *(pytest.param(f, marks=pytest.mark.long) for f in ("vit", "unet")),
        *(pytest.param(f, marks=pytest.mark.slow) for f in ("mobilenet_v3", "inception", "resnext", "bert")),
    ],
)
def test_a_family_compiles_for_c(family: str) -> None:
    module, b, want = imported(family, 17)
    lib = relay.build(module, "c")
    net = relay.graph_executor.GraphModule(lib["default"]())
    net.run(**b.feeds)
    got = np.asarray(net.get_output(0))
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * np.abs(want).max())


@pytest.mark.parametrize("family", ["resnet", "mobilenet_v2", "mobilenet_v3", "densenet", "inception", "unet"])
def test_an_imported_network_changes_its_layout(family: str) -> None:
    module, b, want = imported(family, 13)
    wanted = {"nn.conv2d": ["NHWC", "default"], "nn.max_pool2d": ["NHWC"], "nn.avg_pool2d": ["NHWC"]}
    passes = [relay.transform.SimplifyInference(), relay.transform.ConvertLayout(wanted)]
    with relay.transform.PassContext(opt_level=3):
        changed = relay.transform.Sequential(passes)(module)
    assert "layout_transform" in operators(changed)
    np.testing.assert_allclose(run(changed, b.feeds), want, rtol=0, atol=1e-4 * np.abs(want).max())


def test_the_tasks_of_an_encoder_hold_their_epilogues() -> None:
    """Bias, residual and the whole of GELU are part of the product in front of them."""
    module, _, _ = imported("bert", 17)
    tasks, _ = ansor.extract_tasks(module, {}, "c")
    products = [str(t.compute_dag) for t in tasks if "T_matmul_NT" in str(t.compute_dag)]
    assert len(products) == 5 and all("T_add" in text for text in products)
    assert sum("T_erf" in text for text in products) == 1
