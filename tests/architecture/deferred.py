"""The imports that are not at the top of a module, all of them, and why each is where it is.

In functions stand those of other packages; of our own, functions are imported `when_called` (`te_lite/later.py`).

`tests/architecture/test_imports.py` compares the table with the code.
"""

from __future__ import annotations

DEFERRED: dict[tuple[str, str], str] = {
    ("ansor.autotvm.tuner.xgb_model", "xgboost"): "takes a third of a second to load; needed when a tuner learns",
    ("ansor.cli.torch_side", "torch"): "is compared with where it is installed; comes with the extra [bench]",
    ("ansor.cli.user_code", "<module>"): "runs a module that the user names on the command line",
    ("ansor.cluster.engine", "<module>"): "Ray and its modules come with the extra [cluster]",
    ("ansor.core.files.kernel_store", "<module>"): "asks a package that is there already where its files lie",
    ("ansor.core.target.registry", "<module>"): "the one place that reaches upward: backends and front ends, by name",
    ("ansor.cost_model.trees", "xgboost"): "takes a third of a second to load; needed when a model learns",
    ("ansor.measure.displays", "ansor.measure.live_display"): "rich takes a tenth of a worker's start; for terminals",
    ("ansor.offline.searchers", "optuna"): "comes with the extra [data]",
    ("ansor.offline.searchers", "xgboost"): "takes a third of a second to load; needed when a searcher learns",
    ("ansor.report.page", "jinja2"): "comes with the extra [report]",
    ("codegen_cuda.driver.device", "pycuda.driver"): "comes with the extra [cuda], and needs a driver",
    ("te_lite.later", "<module>"): "the one place that imports modules of ours when they are asked for",
    (
        "te_lite.computation.computation",
        "networkx",
    ): "takes a tenth of a second to load; needed when someone looks at the graph",
    ("relay_lite.frontend.onnx.model", "onnx"): "comes with the extra [onnx]",
    ("relay_lite.frontend.onnx.model", "onnx.external_data_helper"): "comes with the extra [onnx]",
    ("relay_lite.frontend.onnx.model", "onnx.inliner"): "comes with the extra [onnx]",
    ("relay_lite.frontend.onnx.model", "onnx.numpy_helper"): "comes with the extra [onnx]",
    ("relay_lite.frontend.torch.traced", "torch.export"): "is there where a program of it is; gives a table of rules",
    (
        "relay_lite.frontend.torch.traced",
        "torch.export._remove_effect_tokens_pass",
    ): "is there where a program of it is",
}
"""(importing module, imported module): the reason.  `<module>` stands for a name that is known when it runs."""

WHEN_CALLED: dict[str, tuple[str, ...]] = {
    "for a GPU alone": (
        "ansor.analytical.gpu", "ansor.features.warp", "ansor.space.decisions.thread_plans",
        "te_lite.lowering.sync", "ansor_ext.open_sizes.cuda_at_points",
    ),
    "for what becomes of a program after a search": (
        "ansor.core.device.build", "ansor.core.device.export", "ansor.layout.rewrite",
    ),
    "for the transforms of Winograd": ("te_lite.lowering.zero_terms",),
    "for scans": ("te_lite.lowering.scan_storage",),
    "for what programs compute": ("te_lite.expr.arithmetic",),
    "for exported programs and networks": ("codegen_c.export", "codegen_c.network"),
    "for several tasks of a network": ("ansor.records.network",),
    "for mutations of the user's own": ("ansor.evolve.checked",),
    "for what is wrong": ("te_lite.printing.dag_difference",),
}  # fmt: skip
"""Why modules of ours are imported when one of their functions is first called: a tune for `c` needs none of them."""
