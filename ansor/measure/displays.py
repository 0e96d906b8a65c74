"""Which display a search has."""

from __future__ import annotations

import importlib

from .progress import Display, PlainDisplay, SilentDisplay


def make_display(verbose: int) -> Display:
    """0: silent; 1: live on a terminal, plain elsewhere; 2: plain, every result with its program."""
    if verbose <= 0:
        return SilentDisplay()
    live: Display | None = None
    if verbose == 1:
        live = importlib.import_module("ansor.measure.live_display").on_terminal()
    return live or PlainDisplay(every=verbose > 1)
