"""Print a state as a loop nest (spec autoscheduler 3.2); the text also identifies a program in the search."""

from __future__ import annotations

from .state import INLINED, ROOT, Extent, State


def _range(extent: Extent | None) -> str:
    return "(None)" if extent is None else f"(0,{extent})"


def state_text(state: State) -> str:
    """Loops of extent 1 are left out; inlined stages are not printed."""
    names = ", ".join(s.op.name for s in state.stages if s.is_placeholder)
    lines = [f"Placeholder: {names}"]
    for k, stage in enumerate(state.stages):
        if not stage.is_placeholder and stage.where == ROOT:
            _stage_lines(state, k, 0, lines)
    return "\n".join(lines) + "\n"


def _stage_lines(state: State, k: int, indent: int, lines: list[str]) -> None:
    stage = state.stages[k]
    if stage.where == INLINED:
        return
    pad = "  " * indent
    if stage.auto_unroll_max_step:
        lines.append(f"{pad}{stage.op.name} auto_unroll: {stage.auto_unroll_max_step}")
    if stage.storage_align is not None and stage.storage_align[2]:
        lines.append(f"{pad}{stage.op.name} storage_offset: {stage.storage_align[2]}")
    for it in stage.iters:
        if not (isinstance(it.extent, int) and it.extent == 1):
            word = "for" if it.annotation == "none" else it.annotation
            lines.append(f"{'  ' * indent}{word} {it.name} {_range(it.extent)}")
            indent += 1
        for child in state.attached_to(k, it.uid):
            _stage_lines(state, child, indent, lines)
    lines.append(f"{'  ' * indent}{stage.op.name} = ...")
