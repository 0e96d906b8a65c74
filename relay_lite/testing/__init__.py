"""Networks to tune, compile and measure, with weights that any machine draws alike.

graph, params = relay.testing.get_workload("resnet-18", batch_size=1, layout="NHWC")
graph, params = relay.testing.resnet.get_workload(num_layers=18, image_shape=(224, 224, 3), layout="NHWC")

Law: a name and a seed decide every weight.
"""

from . import (
    bert,
    by_name,
    dcgan,
    densenet,
    dqn,
    gpt2,
    inception_v3,
    init,
    layers,
    llama,
    lstm,
    mlp,
    mobilenet,
    mobilenet_v2,
    resnet,
    resnet_3d,
    resnet_v1,
    squeezenet,
    vgg,
    vit,
)
from .by_name import NETWORKS, get_workload
from .init import create_workload

__all__ = [
    "NETWORKS",
    "bert",
    "by_name",
    "create_workload",
    "dcgan",
    "densenet",
    "dqn",
    "get_workload",
    "gpt2",
    "inception_v3",
    "init",
    "layers",
    "llama",
    "lstm",
    "mlp",
    "mobilenet",
    "mobilenet_v2",
    "resnet",
    "resnet_3d",
    "resnet_v1",
    "squeezenet",
    "vgg",
    "vit",
]
