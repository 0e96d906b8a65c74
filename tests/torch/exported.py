"""Writes the small `.pt2` files of tests/golden/exported, with inputs and PyTorch's outputs beside each (`.npz`).

    python -m tests.torch.exported

What torch writes beside the program (sample inputs, which are pickled, and where each line of the model came from) is
left out: the importer never reads it, and it names paths of the machine.
"""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

FOLDER = Path(__file__).parent.parent / "golden" / "exported"
F = nn.functional
EPOCH = (1980, 1, 1, 0, 0, 0)


class Pictures(nn.Module):
    """Convolutions with a shortcut, batch norms, a depthwise one, pools, a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.deep = nn.Sequential(nn.Conv2d(8, 8, 3, 1, 1, groups=8), nn.BatchNorm2d(8), nn.Hardswish())
        self.pool, self.scores = nn.MaxPool2d(3, 2, 1, ceil_mode=True), nn.Linear(8, 5)

    def forward(self, x: Any) -> Any:
        x = self.pool(self.stem(x))
        return self.scores((x + self.deep(x)).mean((2, 3))).softmax(-1)


class Tokens(nn.Module):
    """Embeddings, a layer with attention under a causal mask, and the position of the best score."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(11, 12)
        self.layer = nn.TransformerEncoderLayer(12, 3, 24, 0.0, F.gelu, batch_first=True, norm_first=True)

    def forward(self, tokens: Any) -> Any:
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).triu(1)
        x = self.layer(self.words(tokens), src_mask=mask)
        return x, (x @ self.words.weight.t()).argmax(-1)


class Windows(nn.Module):
    """Shifted windows with a table of biases, indexed by a buffer, and slices that are assigned to."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(25, 2))
        place = torch.stack(torch.meshgrid(torch.arange(3), torch.arange(3), indexing="ij")).flatten(1)
        gap = (place[:, :, None] - place[:, None, :]) + 2
        self.register_buffer("index", gap[0] * 5 + gap[1], persistent=False)

    def forward(self, x: Any) -> Any:
        x = x.roll((-1, -1), (1, 2)).view(1, 2, 3, 2, 3, 4).permute(0, 1, 3, 2, 4, 5).reshape(4, 9, 2, 2)
        q = x.permute(0, 2, 1, 3)
        mask = x.new_zeros((9, 9))
        mask[:3, 3:] = float("-inf")
        scores = q @ q.transpose(-2, -1) + self.table[self.index].permute(2, 0, 1) + mask
        return (scores.softmax(-1) @ q).transpose(1, 2).reshape(4, 9, 4)


class Weights(nn.Module):
    """Weights that share memory, lie in other orders, are constants, and small floats."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.randn(5, 4).t())
        self.two = nn.Parameter(self.one[1:3].detach())
        self.three = self.one
        self.small = nn.Parameter(torch.randn(5).bfloat16())
        self.constant = torch.arange(5)

    def forward(self, x: Any) -> Any:
        y = x.masked_fill(x > 1, float("inf")).clamp(max=2)
        return y @ self.one + self.two.sum(0) * self.small.float() + self.constant, (x @ self.three).to(torch.bfloat16)


def write(name: str, model: nn.Module, *inputs: Any) -> None:
    """One program, what it was given and what it gave."""
    program = torch.export.export(model.eval(), inputs).run_decompositions()
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(FOLDER / f"{name}.pt2", "w") as new:
        for info in old.infolist():
            path = info.filename.partition("/")[2]
            if "sample_inputs" not in path:
                new.writestr(zipfile.ZipInfo(f"{name}/{path}", EPOCH), _without_places(path, old.read(info)))
    found = model(*inputs)
    outputs = found if isinstance(found, tuple) else (found,)
    arrays = {f"input{k}": x.numpy() for k, x in enumerate(inputs)}
    arrays |= {f"output{k}": (y.float() if y.dtype == torch.bfloat16 else y).numpy() for k, y in enumerate(outputs)}
    np.savez(FOLDER / f"{name}.npz", **arrays)


def _without_places(path: str, data: bytes) -> bytes:
    if path != "models/model.json":
        return data
    model = json.loads(data)
    for node in model["graph_module"]["graph"]["nodes"]:
        node["metadata"] = {}
    return json.dumps(model).encode()


def main() -> None:
    torch.manual_seed(0)
    with torch.no_grad():
        pictures = Pictures()
        for module in pictures.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_()
                module.running_var.uniform_(0.5, 2)
        write("pictures", pictures, torch.randn(2, 3, 17, 14))
        write("tokens", Tokens(), torch.randint(0, 11, (2, 7)))
        write("windows", Windows(), torch.randn(1, 6, 6, 4))
        write("weights", Weights(), torch.randn(3, 4))


if __name__ == "__main__":
    main()
