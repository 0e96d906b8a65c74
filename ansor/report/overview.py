"""All tasks of a report in one table: what each takes, alone and in its network, and what its machine could do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..measure.progress import rate_text, seconds_text, spread_text
from ..records.network import NetworkNote
from ..records.summary import TaskSummary
from .pictures import roofline
from .roofline import Roof, Work, roof_of, work_of

Own = Mapping[str, TaskSummary]
"""The records of one task by the name of the log."""


def overview(tasks: Mapping[tuple[str, str], Own], network: NetworkNote | None) -> dict[str, Any]:
    """The table of all tasks, of their `network` if that is known, and the roofline of those that share a machine."""
    bests = {workload: _best(own) for workload, own in tasks.items()}
    counts = {workload: 1.0 if network is None else network.weights.get(workload, 0.0) for workload in tasks}
    total = sum(counts[workload] * seconds for workload, seconds in bests.items() if seconds is not None)
    rows = []
    for k, (workload, own) in enumerate(tasks.items()):
        first, seconds = next(iter(own.values())), bests[workload]
        inside = None if network is None else network.seconds.get(workload)
        rows.append({
            "anchor": f"task{k}", "name": first.names[0], "trials": sum(len(one.curve) for one in own.values()),
            "weight": f"{counts[workload]:g}", "inside": "" if inside is None else seconds_text(inside),
            "best": _best_text(own),
            "rate": "" if seconds is None or first.flops is None else rate_text(first.flops, seconds),
            "share": 0 if seconds is None or not total else 100 * counts[workload] * seconds / total,
            "untuned": _against(own, seconds), "failed": sum(sum(one.failures.values()) for one in own.values()),
        })  # fmt: skip
    return {
        "rows": rows, "total": seconds_text(total) if total else "", "weighted": network is not None,
        "untuned": any(row["untuned"] for row in rows), "inside": any(row["inside"] for row in rows),
        "network": "" if network is None else _network_text(network, total),
        "roofline": _roofline(list(tasks.values()), list(bests.values())),
    }  # fmt: skip


def _network_text(network: NetworkNote, total: float) -> str:
    """What the tasks take together, and a run of the network from end to end."""
    name = network.name or "the network"
    text = f"As often as they occur in {name}, the best programs take {seconds_text(total)}."
    if not network.runs:
        return text
    inside = sum(network.weights[workload] * seconds for workload, seconds in network.seconds.items())
    parts = f"In it they took {seconds_text(inside)}, and kernels that are no task {seconds_text(network.others)}"
    runs, median = network.runs, float(np.median(network.runs))
    whole = spread_text(runs) if len(runs) > 1 else seconds_text(median)
    beside = f", {median / total:.2f} times the sum of the best programs" if total else ""
    return f"{text} {parts}. A run from end to end took {whole}{beside}."


def _best(own: Own) -> float | None:
    found = [one.settled for one in own.values() if one.settled is not None]
    return min(found, default=None)


def _best_text(own: Own) -> str:
    """The least time by which one of the logs is believed, and how far its figures reach where they are known."""
    found = [(one.settled, one) for one in own.values() if one.settled is not None]
    seconds, one = min(found, key=lambda pair: pair[0], default=(0.0, None))
    if one is None:
        return "none"
    return spread_text(one.turns) if one.turns and one.confirmed == seconds else seconds_text(seconds)


def _against(own: Own, best: float | None) -> str:
    untuned = [one.untuned_settled for one in own.values()]
    known = [seconds for seconds in untuned if seconds is not None]
    return f"{min(known) / best:.2f}" if known and best else ""


def _roofline(tasks: Sequence[Own], bests: Sequence[float | None]) -> str:
    found: list[tuple[str, Work, float]] = []
    roofs: list[Roof] = []
    for own, seconds in zip(tasks, bests, strict=True):
        one = next(iter(own.values()))
        if one.task is None or seconds is None:
            continue
        work, roof = work_of(one.task), roof_of(one.task)
        if work is not None and roof is not None:
            found.append((one.names[0], work, seconds))
            roofs.append(roof)
    return roofline(roofs[0], found) if found and len(set(roofs)) == 1 else ""
