"""The models of the zoo: torchvision's, timm's and transformers', at small sizes, with random live weights.

Nothing is downloaded: every model is built from its configuration.  Each is a module that takes tensors and gives a
tensor, or a tuple of some.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

IMAGE = 64
FULL_IMAGE = 224
VOCABULARY = 99
CALIBRATED = 8
"""How many random inputs the statistics of batch normalizations are taken from."""
SPREAD = 0.2
SHIFT = 0.5
LEAST_VARIANCE = 0.1


@dataclass(frozen=True)
class Input:
    """A tensor: normal random numbers, or integers in [low, high) when `high` is given.

    With a `high` of 2 it is a mask, of ones and, after as many of them as are drawn, zeros.
    """

    shape: tuple[int, ...]
    high: int = 0
    low: int = 0

    def draw(self, torch: Any, generator: Any, batch: int | None = None) -> Any:
        """A random one; `batch` takes the place of its first extent."""
        shape = (self.shape[0] if batch is None else batch, *self.shape[1:])
        if self.high == len((False, True)):
            count = torch.randint(1, shape[1] + 1, (shape[0], 1), generator=generator)
            return (torch.arange(shape[1]) < count).long()
        if self.high:
            return torch.randint(self.low, self.high, shape, generator=generator)
        return torch.randn(shape, generator=generator)


@dataclass(frozen=True)
class Entry:
    """A model: where it is from, how it is made, and its inputs; `full` makes it at its usual size."""

    family: str
    make: Callable[[], Any]
    inputs: tuple[Input, ...]
    full: Callable[[], Any] | None = None
    full_inputs: tuple[Input, ...] = field(default=(Input((1, 3, FULL_IMAGE, FULL_IMAGE)),))


# ---------------------------------------------------------------------------------------------------- torchvision


def _vision(name: str, size: int = IMAGE, **options: Any) -> Entry:
    def make(**more: Any) -> Any:
        return import_module("torchvision.models").get_model(name, weights=None, **options, **more)

    return Entry("torchvision", make, (Input((1, 3, size, size)),), make)


def _segmentation(name: str, size: int = IMAGE) -> Entry:
    def make() -> Any:
        model = import_module("torchvision.models").get_model(name, weights=None, weights_backbone=None, num_classes=5)
        return _only(model, lambda model, x: model(x)["out"])

    return Entry("torchvision", make, (Input((1, 3, size, size)),))


def _vit() -> Entry:
    def make(size: int = 32) -> Any:
        vit = import_module("torchvision.models.vision_transformer").VisionTransformer
        return vit(image_size=size, patch_size=16, num_layers=12 if size > IMAGE else 2, num_heads=12, hidden_dim=768,
                   mlp_dim=3072)  # fmt: skip

    return Entry("torchvision", make, (Input((1, 3, 32, 32)),), lambda: make(FULL_IMAGE))


def _maxvit() -> Entry:
    """maxvit_t itself is for 224 x 224 only: seven by seven parts at each of five scales."""

    def make() -> Any:
        maxvit = import_module("torchvision.models.maxvit").MaxVit
        return maxvit(input_size=(64, 64), stem_channels=64, partition_size=2, block_channels=[64, 128, 256, 512],
                      block_layers=[1, 1, 1, 1], head_dim=32, stochastic_depth_prob=0.2)  # fmt: skip

    def full() -> Any:
        return import_module("torchvision.models").maxvit_t(weights=None)

    return Entry("torchvision", make, (Input((1, 3, 64, 64)),), full)


# ----------------------------------------------------------------------------------------------------------- timm


def _timm(name: str, size: int = IMAGE, **small: Any) -> Entry:
    def make(**options: Any) -> Any:
        return import_module("timm").create_model(name, pretrained=False, **options)

    return Entry("timm", lambda: make(**small), (Input((1, 3, size, size)),), make)


# --------------------------------------------------------------------------------------------------- transformers

TOKENS = Input((1, 16), VOCABULARY, 3)
MASK = Input((1, 16), 2)
SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def _text(
    name: str, inputs: tuple[Input, ...], result: Callable[..., Any], config: str | None = None, **options: Any
) -> Entry:
    """A model of transformers; `result` calls it."""

    def make() -> Any:
        transformers = import_module("transformers")
        options_of = getattr(transformers, config or name.removesuffix("Model") + "Config")(**options)
        return _only(getattr(transformers, name)(options_of), result)

    return Entry("transformers", make, inputs)


def _bert(layers: int) -> Entry:
    """At its usual size as BERT-base, for 128 tokens."""
    sizes = {"num_hidden_layers": layers, "vocab_size": VOCABULARY, "max_position_embeddings": 32}
    options: dict[str, Any] = {**SMALL, **sizes}
    small = _text("BertModel", (TOKENS, MASK), _masked, **options)
    full = _text("BertModel", (TOKENS, MASK), _masked, num_hidden_layers=layers)
    tokens = Input((1, 128), VOCABULARY, 3), Input((1, 128), 2)
    return Entry(small.family, small.make, small.inputs, full.make, tokens)


def _masked(model: Any, tokens: Any, mask: Any) -> Any:
    return model(input_ids=tokens, attention_mask=mask).last_hidden_state


def _states(model: Any, tokens: Any) -> Any:
    return model(input_ids=tokens).last_hidden_state


def _logits(model: Any, tokens: Any, mask: Any) -> Any:
    return model(input_ids=tokens, attention_mask=mask, use_cache=False).logits


def _whisper() -> Entry:
    def result(model: Any, mel: Any) -> Any:
        return model.get_encoder()(mel).last_hidden_state

    options: dict[str, Any] = {"d_model": 64, "encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 128,
               "decoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 128, "vocab_size": VOCABULARY,
               "num_mel_bins": 16, "max_source_positions": 24, "pad_token_id": 0, "bos_token_id": 1,
               "eos_token_id": 2, "decoder_start_token_id": 1}  # fmt: skip
    return _text("WhisperModel", (Input((1, 16, 48)),), result, **options)


def _clip_text() -> Entry:
    def result(model: Any, tokens: Any) -> Any:
        out = model(input_ids=tokens)
        return out.last_hidden_state, out.pooler_output

    return _text("CLIPTextModel", (TOKENS,), result, "CLIPTextConfig", **SMALL, vocab_size=VOCABULARY,
                 max_position_embeddings=16, eos_token_id=2, bos_token_id=0, pad_token_id=1)  # fmt: skip


def _clip_vision() -> Entry:
    def result(model: Any, pixels: Any) -> Any:
        out = model(pixel_values=pixels)
        return out.last_hidden_state, out.pooler_output

    return _text("CLIPVisionModel", (Input((1, 3, 32, 32)),), result, "CLIPVisionConfig", **SMALL, image_size=32,
                 patch_size=8)  # fmt: skip


def _only(model: Any, result: Callable[..., Any]) -> Any:
    """`model` as a module whose result is tensors only."""
    module: Any = import_module("torch").nn.Module

    class Only(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return result(self.model, *inputs)

    return Only()


MODELS: Mapping[str, Entry] = {
    "alexnet": _vision("alexnet", FULL_IMAGE),
    "vgg11_bn": _vision("vgg11_bn", FULL_IMAGE),
    "googlenet": _vision("googlenet", aux_logits=False, init_weights=False, transform_input=True),
    "inception_v3": _vision("inception_v3", 80, aux_logits=False, init_weights=False),
    "densenet121": _vision("densenet121"),
    "mobilenet_v2": _vision("mobilenet_v2"),
    "mobilenet_v3_small": _vision("mobilenet_v3_small"),
    "mobilenet_v3_large": _vision("mobilenet_v3_large"),
    "mnasnet0_5": _vision("mnasnet0_5"),
    "shufflenet_v2_x0_5": _vision("shufflenet_v2_x0_5"),
    "squeezenet1_1": _vision("squeezenet1_1"),
    "efficientnet_b0": _vision("efficientnet_b0"),
    "regnet_y_400mf": _vision("regnet_y_400mf"),
    "convnext_tiny": _vision("convnext_tiny"),
    "resnet18": _vision("resnet18"),
    "resnet50": _vision("resnet50"),
    "resnext50": _vision("resnext50_32x4d"),
    "wide_resnet50_2": _vision("wide_resnet50_2"),
    "vit_b_16": _vit(),
    "swin_t": _vision("swin_t"),
    "maxvit_t": _maxvit(),
    "r3d_18": Entry("torchvision", _vision("r3d_18").make, (Input((1, 3, 4, 32, 32)),)),
    "deeplabv3_mobilenet_v3_large": _segmentation("deeplabv3_mobilenet_v3_large"),
    "lraspp": _segmentation("lraspp_mobilenet_v3_large"),
    "fcn_resnet50": _segmentation("fcn_resnet50"),
    "mixer": _timm("mixer_s32_224", img_size=IMAGE),
    "levit": _timm("levit_128s", img_size=IMAGE),
    "deit_tiny": _timm("deit_tiny_patch16_224", img_size=IMAGE, depth=3),
    "efficientnet_lite0": _timm("efficientnet_lite0"),
    "ghostnet": _timm("ghostnet_100"),
    "bert_2": _bert(2),
    "bert_4": _bert(4),
    "distilbert": _text("DistilBertModel", (TOKENS, MASK), _masked, dim=64, n_layers=2, n_heads=4, hidden_dim=128,
                        vocab_size=VOCABULARY, max_position_embeddings=32),
    "gpt2": _text("GPT2LMHeadModel", (TOKENS, MASK), _logits, "GPT2Config", n_embd=64, n_layer=2, n_head=4,
                  n_positions=32, vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0),
    "t5_encoder": _text("T5EncoderModel", (TOKENS,), _states, "T5Config", d_model=64, d_kv=16, d_ff=128, num_layers=2,
                        num_heads=4, vocab_size=VOCABULARY),
    "whisper_encoder": _whisper(),
    "llama": _text("LlamaForCausalLM", (TOKENS, MASK), _logits, "LlamaConfig", **SMALL, num_key_value_heads=2,
                   vocab_size=VOCABULARY, max_position_embeddings=32),
    "clip_text": _clip_text(),
    "clip_vision": _clip_vision(),
}  # fmt: skip


# --------------------------------------------------------------------------------------------------- live weights


def live_model(name: str, full_size: bool = False, seed: int = 0) -> tuple[Any, tuple[Input, ...]]:
    """The module of a model, in evaluation mode with weights drawn from `seed`, and its inputs.

    Vectors are drawn around 1 where they scale and around 0 where they shift, all else so that products keep the size
    of the data: zeros of an initialization (heads, layer scales) would hide what stands before them.  Batch
    normalizations get the statistics that random inputs have, and shift upwards: around 0, each with its relu makes a
    rounding error a fifth larger (Yang et al., A Mean Field Theory of Batch Normalization, ICLR 2019), so that behind
    the layers of Inception two right answers are 1e-4 apart, as those of a trained network are not.
    """
    torch: Any = import_module("torch")
    entry = MODELS[name]
    torch.manual_seed(seed)
    make = entry.full if full_size else entry.make
    assert make is not None, f"{name} has no full size here"
    model = make().eval()
    inputs = entry.full_inputs if full_size else entry.inputs
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for key, weight in model.named_parameters():
            weight.copy_(_drawn(torch, key, weight, generator))
        _calibrate(torch, model, [i.draw(torch, generator, CALIBRATED) for i in inputs])
    return model, inputs


def _drawn(torch: Any, key: str, weight: Any, generator: Any) -> Any:
    """Random values for a weight called `key`."""
    normal = torch.randn(weight.shape, generator=generator)
    if max(weight.shape, default=1) == weight.numel():
        return (0.0 if key.endswith("bias") else 1.0) + SPREAD * normal
    fan = weight.numel() // weight.shape[0] if weight.shape[0] > 1 else 1
    gain = 2.0 if weight.ndim >= len(("out", "in", "height", "width")) else 1.0
    return normal * math.sqrt(gain / fan)


def _calibrate(torch: Any, model: Any, inputs: Sequence[Any]) -> None:
    """Take the running statistics of all batch normalizations from one pass over `inputs`."""
    norms = [m for m in model.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.bias.add_(SHIFT)
        norm.reset_running_stats()
        norm.momentum = 1.0
        norm.train()
    model(*inputs)
    for norm in norms:
        norm.eval()
        norm.running_var.clamp_(min=LEAST_VARIANCE * float(norm.running_var.mean()))
