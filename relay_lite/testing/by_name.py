"""Networks by name, in one layout for all: what a command line and a benchmark ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from te_lite.errors import require
from te_lite.expr.spelling import did_you_mean

from ..ir.errors import GraphError
from . import (
    bert,
    dcgan,
    densenet,
    dqn,
    gpt2,
    inception_v3,
    llama,
    lstm,
    mlp,
    mobilenet,
    mobilenet_v2,
    resnet,
    resnet_3d,
    squeezenet,
    vgg,
    vit,
)
from .init import Workload

_LAYOUTS = ("NHWC", "NCHW")


@dataclass(frozen=True)
class Entry:
    """How a name becomes a call: `image` is the default image, channels last, when the network has one."""

    get_workload: Callable[..., Workload]
    options: Mapping[str, Any] = field(default_factory=dict)
    image: tuple[int, ...] = ()
    image_argument: str = "image_shape"
    has_layout: bool = True


def _depths(
    name: str, get: Callable[..., Workload], argument: str, depths: str, image: tuple[int, ...]
) -> dict[str, Entry]:
    return {f"{name}-{depth}": Entry(get, {argument: int(depth)}, image) for depth in depths.split()}


_PICTURE = (224, 224, 3)
_RESNETS = "18 34 50 101 152 200 269"

NETWORKS: Mapping[str, Entry] = {
    **_depths("resnet", resnet.get_workload, "num_layers", _RESNETS, _PICTURE),
    **_depths("resnet3d", resnet_3d.get_workload, "num_layers", _RESNETS, (16, 112, 112, 3)),
    "mobilenet": Entry(mobilenet.get_workload, image=_PICTURE),
    "mobilenet_v2": Entry(mobilenet_v2.get_workload, image=_PICTURE),
    "vit_b_16": Entry(vit.get_workload, image=_PICTURE),
    "deit_tiny": Entry(vit.get_workload, {"hidden": 192, "num_heads": 3}, _PICTURE),
    "squeezenet_v1.0": Entry(squeezenet.get_workload, {"version": "1.0"}, _PICTURE),
    "squeezenet_v1.1": Entry(squeezenet.get_workload, {"version": "1.1"}, _PICTURE),
    "inception_v3": Entry(inception_v3.get_workload, image=(299, 299, 3)),
    **_depths("vgg", vgg.get_workload, "num_layers", "11 13 16 19", _PICTURE),
    **_depths("densenet", densenet.get_workload, "densenet_size", "121 161 169 201", _PICTURE),
    "dcgan": Entry(dcgan.get_workload, image=(64, 64, 3), image_argument="oshape"),
    "mlp": Entry(mlp.get_workload, image=(28, 28, 1), has_layout=False),
    "dqn": Entry(dqn.get_workload, image=(84, 84, 4)),
    "lstm": Entry(lstm.get_workload, {"iterations": 8, "num_hidden": 128}, has_layout=False),
    "bert-base": Entry(bert.get_workload, has_layout=False),
    "gpt2": Entry(gpt2.get_workload, has_layout=False),
    "llama-135m": Entry(llama.get_workload, has_layout=False),
}


def names_law(name: str) -> str:
    """What is said of a name that is none of `NETWORKS`."""
    return f"{did_you_mean(str(name), NETWORKS)}networks are {', '.join(NETWORKS)}"


def get_workload(
    name: str,
    batch_size: int = 1,
    layout: str = "NHWC",
    image_shape: tuple[int, ...] | None = None,
    dtype: str = "float32",
    **options: Any,
) -> Workload:
    """The network `name` (a key of `NETWORKS`) as a module, and its parameters by name.

    `layout` is NHWC or NCHW; for `resnet3d-*` these mean NDHWC and NCDHW.  Every network of images is made in the
    layout that is asked for; `mlp`, `lstm` and networks of tokens have none.  `image_shape` follows the
    layout, without the batch, and is the picture that comes out of `dcgan`; `options` are further arguments of the
    network's own `get_workload`.  Raises GraphError for an unknown name or layout, and for an image that the network
    cannot take.
    """
    require(name in NETWORKS, GraphError, "network", names_law(name), name=name)
    entry = NETWORKS[name]
    known = layout in _LAYOUTS or (len(entry.image) == 4 and layout in ("NDHWC", "NCDHW"))
    require(known, GraphError, name, f"layouts are {' and '.join(_LAYOUTS)}", layout=layout)
    require(image_shape is None or entry.image, GraphError, name, "the network has no image", image_shape=image_shape)
    arguments = {**entry.options, "batch_size": batch_size, "dtype": dtype, **options}
    return entry.get_workload(**{**arguments, **_image_arguments(entry, layout, image_shape)})


def _image_arguments(entry: Entry, layout: str, image_shape: tuple[int, ...] | None) -> dict[str, Any]:
    """The picture and the layout, for networks that have them."""
    full = layout.replace("H", "DH") if len(entry.image) == 4 and "D" not in layout else layout
    arguments: dict[str, Any] = {"layout": full} if entry.has_layout else {}
    if entry.image:
        channels_first = (entry.image[-1], *entry.image[:-1])
        usual = channels_first if full.startswith("NC") else entry.image
        arguments[entry.image_argument] = usual if image_shape is None else tuple(image_shape)
    return arguments
