"""Networks of PyTorch, compiled and run in its hands: `optimize`, and the backend `ansor` of `torch.compile`.

    import relay_lite.pytorch

    fast = relay_lite.pytorch.optimize(model.eval(), example_inputs)
    fast = torch.compile(model.eval(), backend="ansor")

Law: this is the only package that imports torch, and nothing else imports it.
"""

from __future__ import annotations

from .dynamo import ansor
from .module import OptimizedModule, optimize

__all__ = ["OptimizedModule", "ansor", "optimize"]
