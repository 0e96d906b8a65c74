"""Networks that are on integers from their first layer to their last, for the commands that tune and run them."""

from __future__ import annotations

import relay_lite as relay
from relay_lite.ir import Function
from relay_lite.ir.nodes import children
from relay_lite.testing import mobilenet, resnet_v1
from relay_lite.testing.init import Workload, create_workload


def quantized_network(name: str, batch: int, size: int, seed: int) -> Function:
    """A network on pictures [batch, 3, size, size] with random weights, quantised from its first layer to its logits.

    MobileNet has a scale for each channel: of depthwise weights nine numbers share one.  Raises GraphError for a size
    that the network cannot have.
    """
    module, params = _workload(name, batch, size, seed)
    settings = relay.quantize.qconfig(8.0, None, skip_dense_layer=False, per_channel=name == "mobilenet")
    with settings:
        return relay.quantize.quantize(module, params)["main"]


def _workload(name: str, batch: int, size: int, seed: int) -> Workload:
    if name == "resnet-18":
        return resnet_v1.get_workload(batch, image_shape=(3, size, size), seed=seed)
    whole = mobilenet.get_net(batch, image_shape=(3, size, size))
    (logits,) = children(whole.body)
    return create_workload(Function(whole.params, logits), resnet_v1.Lively(), seed)
