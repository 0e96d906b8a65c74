"""`autotvm.task`: the tasks of networks."""

from __future__ import annotations

from ansor.autotvm.task import Task, create, template

from ..graph.extract import extract_from_program


class TaskExtractEnv:
    """Nothing has to be set up: a template is known from its definition on."""


__all__ = ["Task", "TaskExtractEnv", "create", "extract_from_program", "template"]
