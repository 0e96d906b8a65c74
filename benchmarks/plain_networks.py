"""Four networks at their usual sizes, in PyTorch alone: no torchvision, no transformers.

ResNet-50 (v1.5), ViT-B/16, BERT-base and GPT-2 (small), at hidden states in front of the words' scores.  Weights are
random and live: batch norms have the moments of what they see, so that no layer's results vanish.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

PICTURE, PATCH, CLASSES = 224, 16, 1000
HIDDEN, HEADS, LAYERS = 768, 12, 12
WORDS = {"bert": 30522, "gpt2": 50257}
POSITIONS = {"bert": 512, "gpt2": 1024}
DEPTHS, WIDTHS, WIDENED = (3, 4, 6, 3), (64, 128, 256, 512), 4


def _resnet50(torch: Any) -> Any:
    """Blocks of 1x1, 3x3 (with the stride), 1x1, each normalised, and a shortcut."""
    nn: Any = torch.nn
    module: Any = nn.Module

    def normed(into: int, out: int, window: int, stride: int = 1) -> list[Any]:
        return [nn.Conv2d(into, out, window, stride, window // 2, bias=False), nn.BatchNorm2d(out)]

    class Block(module):  # type: ignore[misc]
        def __init__(self, into: int, width: int, stride: int) -> None:
            super().__init__()
            out = WIDENED * width
            self.body = nn.Sequential(
                *normed(into, width, 1), nn.ReLU(), *normed(width, width, 3, stride), nn.ReLU(), *normed(width, out, 1)
            )
            self.short = nn.Sequential(*normed(into, out, 1, stride)) if into != out else nn.Identity()

        def forward(self, x: Any) -> Any:
            return torch.relu(self.body(x) + self.short(x))

    blocks, into = [], WIDTHS[0]
    for stage, (depth, width) in enumerate(zip(DEPTHS, WIDTHS, strict=True)):
        for k in range(depth):
            blocks.append(Block(into, width, 2 if stage and not k else 1))
            into = WIDENED * width
    return nn.Sequential(
        *normed(3, WIDTHS[0], 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(into, CLASSES),
    )  # fmt: skip


def _layers(torch: Any, first_norm: bool, causal: bool, gelu: str) -> Any:
    """Transformer layers whose sums are normalised: before attention and products, or after."""
    nn: Any = torch.nn
    module: Any = nn.Module
    attention = nn.functional.scaled_dot_product_attention

    class Layer(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.joined, self.out = nn.Linear(HIDDEN, 3 * HIDDEN), nn.Linear(HIDDEN, HIDDEN)
            self.norms = nn.ModuleList([nn.LayerNorm(HIDDEN, 1e-6) for _ in range(2)])
            self.wide = nn.Sequential(
                nn.Linear(HIDDEN, 4 * HIDDEN), nn.GELU(approximate=gelu), nn.Linear(4 * HIDDEN, HIDDEN)
            )

        def attended(self, x: Any) -> Any:
            heads = self.joined(x).unflatten(-1, (3, HEADS, HIDDEN // HEADS)).permute(2, 0, 3, 1, 4)
            found = attention(*heads.unbind(0), is_causal=causal)
            return self.out(found.transpose(1, 2).flatten(2))

        def forward(self, x: Any) -> Any:
            for norm, work in zip(self.norms, (self.attended, self.wide), strict=True):
                x = x + work(norm(x)) if first_norm else norm(x + work(x))
            return x

    return nn.Sequential(*[Layer() for _ in range(LAYERS)])


def _vit_b_16(torch: Any) -> Any:
    nn: Any = torch.nn
    module: Any = nn.Module

    class Vision(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, HIDDEN, PATCH, PATCH)
            self.first = nn.Parameter(torch.randn(1, 1, HIDDEN))
            self.places = nn.Parameter(torch.randn(1, (PICTURE // PATCH) ** 2 + 1, HIDDEN))
            self.layers = _layers(torch, first_norm=True, causal=False, gelu="none")
            self.norm, self.head = nn.LayerNorm(HIDDEN, 1e-6), nn.Linear(HIDDEN, CLASSES)

        def forward(self, x: Any) -> Any:
            x = self.patches(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.first.expand(len(x), -1, -1), x], 1) + self.places
            return self.head(self.norm(self.layers(x))[:, 0])

    return Vision()


def _of_words(name: str) -> Callable[[Any], Any]:
    """A network of tokens; BERT's (one segment, no padding) norms come after the sums, GPT-2's before."""

    def make(torch: Any) -> Any:
        nn: Any = torch.nn
        module: Any = nn.Module
        causal = name == "gpt2"

        class Text(module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.words = nn.Embedding(WORDS[name], HIDDEN)
                self.places = nn.Parameter(torch.randn(POSITIONS[name], HIDDEN))
                self.layers = _layers(torch, first_norm=causal, causal=causal, gelu="tanh" if causal else "none")
                self.norm = nn.LayerNorm(HIDDEN, 1e-6)

            def forward(self, tokens: Any) -> Any:
                x = self.words(tokens) + self.places[: tokens.shape[1]]
                return self.norm(self.layers(x)) if causal else self.layers(self.norm(x))

        return Text()

    return make


@dataclass(frozen=True)
class Plain:
    """How a network is made, its usual batch, and the tokens of a text, 0 for pictures."""

    make: Callable[[Any], Any]
    batch: int
    tokens: int = 0
    words: int = 0


NETWORKS: Mapping[str, Plain] = {
    "resnet50": Plain(_resnet50, 32),
    "vit_b_16": Plain(_vit_b_16, 8),
    "bert": Plain(_of_words("bert"), 16, 128, WORDS["bert"]),
    "gpt2": Plain(_of_words("gpt2"), 4, 512, WORDS["gpt2"]),
}


def plain_network(torch: Any, name: str, batch: int = 0) -> tuple[Any, tuple[Any, ...]]:
    """A network of `NETWORKS` in eval mode, in float32 on the processor, and its inputs, of `batch` samples or as many
    as usual."""
    torch.manual_seed(0)
    entry = NETWORKS[name]
    model, batch = entry.make(torch), batch or entry.batch
    if entry.tokens:
        return model.eval(), (torch.randint(0, entry.words, (batch, entry.tokens)),)
    _with_moments(torch, model)
    return model.eval(), (torch.randn(batch, 3, PICTURE, PICTURE),)


def _with_moments(torch: Any, model: Any) -> None:
    """Give batch norms the moments of what they see of a random picture."""
    norms = [x for x in model.modules() if isinstance(x, torch.nn.BatchNorm2d)]
    for norm in norms:
        norm.momentum = None
    with torch.no_grad():
        model.train()(torch.randn(2, 3, PICTURE, PICTURE)) if norms else None
