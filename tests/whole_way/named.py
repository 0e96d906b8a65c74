"""Tasks of networks: those by name, with a random batch, size and layout, and those of ONNX models."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from ansor.core.tasks.task import SearchTask
from relay_lite.compiler.optimize import extract_tasks
from relay_lite.testing import NETWORKS, get_workload, init
from relay_lite.tuning.network import SUFFIX, load_network
from te_lite.printing.dag_json import dag_to_json

from .lanes import HARDWARE

MOST = 10
"""Tasks of one draw."""
SIDES: Mapping[str, tuple[int, ...]] = {
    "dcgan": (16, 32, 48, 64),
    "vit_b_16": (32, 96, 224, 384),
    "deit_tiny": (32, 96, 224, 384),
    "inception_v3": (75, 96, 149, 299),
    "dqn": (36, 84),
    "mlp": (1, 5, 28),
}
"""The sides that the image of a network may have, where not any from 33 to 320 will do."""
WORDS = {"num_layers": (1,), "seq_len": (1, 7, 16, 33, 128, 384)}
OPTIONS: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "bert-base": {**WORDS, "vocab_size": (None, 1000)},
    "gpt2": {**WORDS, "vocab_size": (1000,)},
    "llama-135m": {**WORDS, "vocab_size": (1000,), "num_key_heads": (1, 3, 9), "ffn": (1536, 1000)},
    "lstm": {"iterations": (1, 3), "num_hidden": (1, 11, 128)},
    "vit_b_16": {"num_layers": (1,)},
    "deit_tiny": {"num_layers": (1,)},
}
"""What the options of a network are drawn from; layers that repeat give no other tasks."""


@dataclass(frozen=True)
class Tasks:
    """Tasks of a network by name or of an ONNX model: those at `only`, modulo their number, or all."""

    name: str
    layout: str = "NHWC"
    batch: int = 1
    image: tuple[int, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    only: tuple[int, ...] | None = None

    def made(self, target: str) -> list[SearchTask]:
        """The tasks.  Raises whatever making them raises."""
        if self.name.endswith(SUFFIX):
            network = load_network(self.name, self.batch, self.layout)
            graph, params = network.graph, network.params
        else:
            with patch.object(init.Xavier, "weight", lambda self, name, array, rng: None):
                graph, params = get_workload(self.name, self.batch, self.layout, self.image, **self.options)
        tasks, _ = extract_tasks(graph, params, target, HARDWARE[target])
        places = range(len(tasks)) if self.only is None else sorted({k % len(tasks) for k in self.only})
        return [tasks[k] for k in places]


def draw(rng: np.random.Generator) -> Tasks:
    """Some tasks of some network."""
    name = str(rng.choice(list(NETWORKS)))
    layout = "NCHW" if rng.random() < 0.5 else "NHWC"
    batch = int(rng.choice([1, 1, 1, 2, 3, 8, 16]))
    options = {k: v[int(rng.integers(len(v)))] for k, v in OPTIONS.get(name, {}).items()}
    only = tuple(sorted(rng.integers(0, 1 << 16, MOST).tolist()))
    return Tasks(name, layout, batch, _image(name, layout, rng), options, only)


def _image(name: str, layout: str, rng: np.random.Generator) -> tuple[int, ...] | None:
    usual = NETWORKS[name].image
    if not usual:
        return None
    sides = [int(rng.choice(SIDES.get(name, range(33, 321)))) for _ in "HW"]
    if len(usual) == 4:
        sides = [int(rng.integers(1, 17)), *[min(s, 112) for s in sides]]
    return (usual[-1], *sides) if layout == "NCHW" else (*sides, usual[-1])


def models(folder: Path) -> list[Tasks]:
    """All tasks of every ONNX model in a folder, in both layouts."""
    return [Tasks(str(path), layout) for path in sorted(folder.glob(f"**/*{SUFFIX}")) for layout in ("NHWC", "NCHW")]


def smaller(given: Tasks) -> Iterator[Tasks]:
    """One task of several."""
    if given.only is None or len(given.only) > 1:
        for k in given.only or range(len(given.made("cuda"))):
            yield replace(given, only=(k,))


def text_of(given: Tasks) -> str:
    """The computations, as text and as JSON when it is one only."""
    made = given.made("cuda")
    if len(made) > 1:
        return f"    {len(made)} tasks of {given.name}"
    return "\n".join([f"{t.compute_dag}\n{json.dumps(dag_to_json(t.compute_dag))}" for t in made])


def to_json(given: Tasks) -> str:
    """One line."""
    return json.dumps(asdict(given))


def from_json(text: str) -> Tasks:
    """The tasks in `to_json`'s text."""
    data = json.loads(text)
    image, only = (None if data[k] is None else tuple(data[k]) for k in ("image", "only"))
    return Tasks(data["name"], data["layout"], data["batch"], image, data["options"], only)
