"""The network that the commands tune, and whether it is right."""

from __future__ import annotations

import numpy as np

import relay_lite as relay
from relay_lite.ir import Array, Function
from relay_lite.testing import resnet_v1

from ..core.environment import Environment
from ..graph import graph_pack
from ..graph.machine_kernel import RunKernel
from ..graph.reference import run_kernel as numpy_kernel
from ..network.executor import VtaModule


def packed_resnet(env: Environment, size: int, seed: int) -> Function:
    """ResNet-18 v1 with random weights, quantised and packed.  Raises GraphError for a size that it cannot have."""
    mod, params = resnet_v1.get_workload(env.BATCH, image_shape=(3, size, size), seed=seed)
    with relay.quantize.qconfig(global_scale=8.0, skip_conv_layers=[0]):
        mod = relay.quantize.quantize(mod, params)
    return graph_pack(mod["main"], env.BATCH, env.BLOCK_OUT, env.WGT_WIDTH, device_annot=True)


def verdict(equal: bool) -> int:
    """Say whether the output is right; gives the exit code."""
    verdict = "equals the int8 reference bit for bit" if equal else "DIFFERS from the int8 reference"
    print(f"output: {verdict}")
    return 0 if equal else 1


def check(module: VtaModule, default_tiles: RunKernel, image: Array) -> bool:
    """Run the network with its kernels in NumPy, with those of default tiles, and as it is; whether all agree."""
    network, tuned = module.network, module.network.run_kernel
    outputs = []
    for network.run_kernel in (numpy_kernel, default_tiles, tuned):
        module.run(data=image)
        outputs.append(module.get_output(0).numpy())
    return all(np.array_equal(out, outputs[0]) for out in outputs)
