"""How a program runs inside a network: its constant weights, and the caches that it finds."""

from __future__ import annotations

from .layout_option import LayoutRewriteOption


def layout_in_networks(kind: str) -> LayoutRewriteOption:
    """How weights are stored in the networks of a target kind, and so where their tasks are measured."""
    return LayoutRewriteOption.REWRITE_FOR_PRE_TRANSFORMED if kind == "c" else LayoutRewriteOption.NO_REWRITE


def cold_in_networks(kind: str) -> bool:
    """Whether the caches are emptied before each figure of such a task, since its weights come from memory."""
    return kind == "c"
