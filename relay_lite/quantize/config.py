"""How a network is quantised.

with relay.quantize.qconfig(global_scale=8.0, skip_conv_layers=[0]):
    module = relay.quantize.quantize(module, params)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import TracebackType

from te_lite.errors import require

from ..ir.errors import GraphError


@dataclass(frozen=True)
class QConfig:
    """Settings; entering one makes it the current one of this thread (or task) until it is left.

    global_scale: activations beyond it are clipped; a power of two, so that rescaling is a shift.
    skip_conv_layers: convolutions that stay in float32, by their number in execution order.
    skip_dense_layer: whether everything from the global pool on stays in float32.
    per_channel: whether every output channel of a weight has a power of two of its own.
    """

    global_scale: float = 8.0
    skip_conv_layers: tuple[int, ...] = (0,)
    skip_dense_layer: bool = True
    per_channel: bool = False

    def __post_init__(self) -> None:
        scale = self.global_scale
        ok = isinstance(scale, int | float) and 2.0**-20 <= scale <= 2.0**20 and math.frexp(scale)[0] == 0.5
        law = "must be a power of two from 2**-20 to 2**20, so that rescaling is a shift"
        require(ok, GraphError, "global_scale", law, got=scale)
        whole = all(isinstance(k, int) and k >= 0 for k in self.skip_conv_layers)
        require(whole, GraphError, "skip_conv_layers", "numbers from 0 on are needed", got=self.skip_conv_layers)

    @property
    def exponent(self) -> int:
        """Activations are int8 multiples of 2 to this: `global_scale / 128`."""
        return math.frexp(self.global_scale)[1] - 1 - 7

    @staticmethod
    def current() -> QConfig:
        """The innermost settings that are entered, or the default ones."""
        entered = _ENTERED.get()
        return entered[-1] if entered else DEFAULT

    def __enter__(self) -> QConfig:
        _ENTERED.set((*_ENTERED.get(), self))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _ENTERED.set(_ENTERED.get()[:-1])


DEFAULT = QConfig()
_ENTERED: ContextVar[tuple[QConfig, ...]] = ContextVar("entered quantisation settings", default=())


def qconfig(
    global_scale: float = 8.0,
    skip_conv_layers: Sequence[int] | None = (0,),
    skip_dense_layer: bool = True,
    per_channel: bool = False,
) -> QConfig:
    """Settings to be entered by `with`; None skips no convolution.  Raises GraphError, see `QConfig`."""
    return QConfig(global_scale, tuple(skip_conv_layers or ()), skip_dense_layer, per_channel)
