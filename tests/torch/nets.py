"""The parts that known networks are made of, as small networks with random weights and live batch norms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

F = nn.functional
Made = tuple[nn.Module, tuple[Any, ...]]


def conv_norm(i: int, o: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(o))


class Basic(nn.Module):
    """The block of ResNet-18."""

    def __init__(self, i: int, o: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(conv_norm(i, o, 3, stride), nn.ReLU(inplace=True), conv_norm(o, o, 3))
        self.short = nn.Identity() if stride == 1 and i == o else conv_norm(i, o, 1, stride)

    def forward(self, x: Any) -> Any:
        y = self.body(x)
        y += self.short(x)
        return F.relu(y)


class Bottleneck(nn.Module):
    """The block of ResNet-50."""

    def __init__(self, i: int, o: int) -> None:
        super().__init__()
        relu = nn.ReLU()
        self.body = nn.Sequential(conv_norm(i, o, 1), relu, conv_norm(o, o, 3), relu, conv_norm(o, 4 * o, 1))
        self.short = conv_norm(i, 4 * o, 1)

    def forward(self, x: Any) -> Any:
        return F.relu(self.body(x) + self.short(x))


def resnet(*blocks: nn.Module, channels: int) -> nn.Module:
    stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(channels, 10))


class Squeeze(nn.Module):
    """Squeeze and excitation."""

    def __init__(self, c: int, gate: Callable[[Any], Any]) -> None:
        super().__init__()
        self.down, self.up, self.gate = nn.Conv2d(c, c // 4, 1), nn.Conv2d(c // 4, c, 1), gate

    def forward(self, x: Any) -> Any:
        return x * self.gate(self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1)))))


class Inverted(nn.Module):
    """The inverted residual of the mobile networks and of EfficientNet."""

    def __init__(self, c: int, kernel: int, act: Callable[[], nn.Module], gate: Callable[[Any], Any] | None) -> None:
        super().__init__()
        squeeze = nn.Identity() if gate is None else Squeeze(4 * c, gate)
        deep = conv_norm(4 * c, 4 * c, kernel, 1, 4 * c)
        self.body = nn.Sequential(conv_norm(c, 4 * c, 1), act(), deep, act(), squeeze, conv_norm(4 * c, c, 1))

    def forward(self, x: Any) -> Any:
        return x + self.body(x)


def mobile(kernel: int, act: Callable[[], nn.Module], gate: Callable[[Any], Any] | None = None) -> nn.Module:
    blocks = [Inverted(16, kernel, act, gate), Inverted(16, 3, act, gate)]
    return nn.Sequential(conv_norm(3, 16, 3, 2), act(), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Dropout(0.2), nn.Linear(16, 10))  # fmt: skip


class NextBlock(nn.Module):
    """The block of ConvNeXt."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.deep, self.norm = nn.Conv2d(d, d, 7, padding=3, groups=d), nn.LayerNorm(d)
        self.up, self.down, self.scale = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.Parameter(torch.rand(d, 1, 1))

    def forward(self, x: Any) -> Any:
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + self.scale * self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


class Vit(nn.Module):
    """Patches, a class token, positions, encoder layers."""

    def __init__(self, d: int = 48) -> None:
        super().__init__()
        self.patches, self.head = nn.Conv2d(3, d, 16, 16), nn.Linear(d, 10)
        self.token, self.places = nn.Parameter(torch.randn(1, 1, d)), nn.Parameter(torch.randn(1, 17, d))
        layer = nn.TransformerEncoderLayer(d, 3, 4 * d, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, nn.LayerNorm(d), enable_nested_tensor=False)

    def forward(self, x: Any) -> Any:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1) + self.places
        return self.head(self.encoder(x)[:, 0])


class Swin(nn.Module):
    """Attention in windows, plain and shifted, with a table of biases; then patches are merged."""

    def __init__(self, d: int = 24, window: int = 4) -> None:
        super().__init__()
        self.window, self.patches, self.norm = window, nn.Conv2d(3, d, 4, 4), nn.LayerNorm(d)
        self.qkv, self.out, self.merge = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(4 * d, 2 * d, bias=False)
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, 3))
        axes = torch.arange(window)
        place = torch.stack(torch.meshgrid(axes, axes, indexing="ij")).flatten(1)
        gap = place[:, :, None] - place[:, None, :] + window - 1
        self.register_buffer("index", (gap[0] * (2 * window - 1) + gap[1]).flatten())

    def windows(self, x: Any) -> Any:
        b, h, w, c = x.shape
        x = x.view(b, h // self.window, self.window, w // self.window, self.window, c)
        return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, self.window**2, c)

    def mask(self, h: int, w: int) -> Any:
        areas = torch.zeros((1, h, w, 1))
        for k, rows in enumerate((slice(0, -self.window), slice(-self.window, -2), slice(-2, None))):
            areas[:, rows] = k
        flat = self.windows(areas)[..., 0]
        gap = flat[:, None, :] - flat[:, :, None]
        return gap.masked_fill(gap != 0, -100.0)

    def attention(self, x: Any, shift: int) -> Any:
        b, h, w, c = x.shape
        parts = self.windows(torch.roll(self.norm(x), (-shift, -shift), (1, 2)))
        q, k, v = self.qkv(parts).reshape(*parts.shape[:2], 3, 3, c // 3).permute(2, 0, 3, 1, 4)
        size = self.window**2
        scores = q * (c // 3) ** -0.5 @ k.transpose(-2, -1)
        scores = scores + self.table[self.index].view(size, size, 3).permute(2, 0, 1)
        if shift:
            scores = scores + self.mask(h, w)[:, None]
        out = self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(parts.shape))
        out = out.view(b, h // self.window, w // self.window, self.window, self.window, c)
        return torch.roll(out.permute(0, 1, 3, 2, 4, 5).reshape(x.shape), (shift, shift), (1, 2))

    def forward(self, x: Any) -> Any:
        x = self.patches(x).permute(0, 2, 3, 1)
        x = x + self.attention(x, 0)
        x = x + self.attention(x, 2)
        corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.merge(torch.cat(corners, -1)).mean((1, 2))


class Hidden(nn.Module):
    """A model of transformers as a function of its tokens."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Any) -> Any:
        return self.model(tokens).last_hidden_state


def of_tokens(name: str) -> nn.Module:
    """A small model of transformers."""
    import transformers as t

    match name:
        case "bert":
            config = t.BertConfig(vocab_size=99, hidden_size=48, num_hidden_layers=2, num_attention_heads=3,
                                  intermediate_size=96)  # fmt: skip
            return Hidden(t.BertModel(config))
        case "gpt2":
            return Hidden(t.GPT2Model(t.GPT2Config(vocab_size=99, n_embd=48, n_layer=2, n_head=3)))
    config = t.T5Config(vocab_size=99, d_model=48, d_kv=16, d_ff=96, num_layers=2, num_heads=3)
    return Hidden(t.T5EncoderModel(config))


def picture(side: int = 64) -> Any:
    return torch.randn(1, 3, side, side)


NETS: dict[str, Callable[[], nn.Module]] = {
    "resnet-18": lambda: resnet(Basic(16, 16, 1), Basic(16, 32, 2), channels=32),
    "resnet-50": lambda: resnet(Bottleneck(16, 8), channels=32),
    "mobilenet_v2": lambda: mobile(3, nn.ReLU6),
    "mobilenet_v3": lambda: mobile(5, nn.Hardswish, F.hardsigmoid),
    "efficientnet_b0": lambda: mobile(5, nn.SiLU, torch.sigmoid),
    "convnext_tiny": lambda: nn.Sequential(nn.Conv2d(3, 24, 4, 4), NextBlock(24), NextBlock(24)),
    "vit_b_16": Vit,
    "swin_t": Swin,
    "bert": lambda: of_tokens("bert"),
    "gpt2": lambda: of_tokens("gpt2"),
    "t5": lambda: of_tokens("t5"),
}


def made(name: str) -> Made:
    """A network and inputs for it."""
    torch.manual_seed(0)
    model = NETS[name]().eval()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.5, 2)
    inputs = torch.randint(0, 99, (1, 17)) if name in ("bert", "gpt2", "t5") else picture()
    return model, (inputs,)
