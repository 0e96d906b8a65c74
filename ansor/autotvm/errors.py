"""What templates refuse."""

from __future__ import annotations

from ..core.errors import TaskError


class TemplateError(TaskError):
    """A template, knob, space, tuner or option that is unknown or does not fit."""


class InstantiationError(TemplateError):
    """A configuration that a template declares invalid; the text is the reason."""
