"""Models at their usual sizes under `torch.compile(backend="ansor")`: errors, copies, what runs in PyTorch, times.

    python -m benchmarks.torch_models [--models NAME ...] [--json FILE]

Weights are random and live (`zoo_models.py`).  Nothing is measured before: every kernel gets the default program.  On
the processor; needs the extra `zoo`.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks import report
from benchmarks.zoo_models import live_model

TOKENS, WORDS = 128, 30000
LIMIT = 1e-4
REPEAT = 5
PICTURES = ("resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_large", "efficientnet_b0", "convnext_tiny",
            "vit_b_16", "swin_t")  # fmt: skip
TEXTS = {
    "bert": ("BertModel", "BertConfig"), "gpt2": ("GPT2Model", "GPT2Config"),
    "t5_encoder": ("T5EncoderModel", "T5Config"),
}  # fmt: skip


def text_model(torch: Any, name: str) -> Any:
    """A model of transformers as its configuration makes it, which gives its last hidden states."""
    transformers = import_module("transformers")
    model, config = (getattr(transformers, part) for part in TEXTS[name])
    module: Any = torch.nn.Module

    class Hidden(module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model(config())

        def forward(self, tokens: Any) -> Any:
            return self.model(tokens).last_hidden_state

    torch.manual_seed(0)
    return Hidden().eval()


def drawn(torch: Any, name: str, batch: int = 1) -> tuple[Any, tuple[Any, ...]]:
    """A model and its inputs, `batch` samples."""
    generator = torch.Generator().manual_seed(1)
    if name in TEXTS:
        return text_model(torch, name), (torch.randint(0, WORDS, (batch, TOKENS), generator=generator),)
    model, inputs = live_model(name, full_size=True)
    return model, tuple([i.draw(torch, generator, batch) for i in inputs])


def least(run: Callable[[], Any]) -> float:
    """Seconds of the fastest of some calls."""
    times = []
    for _ in range(REPEAT):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def result(torch: Any, name: str) -> dict[str, Any]:
    """What a model does by our programs, beside PyTorch."""
    program = import_module("relay_lite.pytorch.program").Program
    made: list[Any] = []
    plain = program.__init__

    def init(self: Any, *args: Any) -> None:
        plain(self, *args)
        made.append(self)

    program.__init__ = init
    model, inputs = drawn(torch, name)
    with torch.no_grad():
        want = model(*inputs)
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="ansor")
        start = time.perf_counter()
        got = compiled(*inputs)
        first = time.perf_counter() - start
        figures = {"ours_ms": 1e3 * least(lambda: compiled(*inputs)), "eager_ms": 1e3 * least(lambda: model(*inputs))}
    program.__init__ = plain
    error = float((got.double() - want.double()).abs().max() / want.abs().max())
    return {
        "model": name, "torch": torch.__version__, "error": error, "right": error <= LIMIT, "programs": len(made),
        "kernels": sum(len(p.plan.steps) for p in made), "copied": sum(p.copied for p in made),
        "first_call_s": round(first, 1), **{k: round(v, 2) for k, v in figures.items()},
    }  # fmt: skip


def main() -> None:
    parser = report.parser(__doc__ or "")
    parser.add_argument("--models", nargs="+", default=[*PICTURES, *TEXTS], choices=[*PICTURES, *TEXTS], metavar="NAME",
                        help=f"of {', '.join([*PICTURES, *TEXTS])}")  # fmt: skip
    args = parser.parse_args()
    drawn_by = {"transformers" if name in TEXTS else "torchvision" for name in args.models}
    report.require_packages("torch", *sorted(drawn_by))
    warnings.filterwarnings("ignore")
    torch: Any = import_module("torch")
    for name in args.models:
        found = result(torch, name)
        print(json.dumps(found), flush=True)
        if args.json:
            path = Path(args.json)
            known = json.loads(path.read_text()) if path.exists() else {}
            path.write_text(json.dumps({**known, name: found}, indent=1) + "\n")


if __name__ == "__main__":
    report.run(main)
