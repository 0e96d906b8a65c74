"""What the query tool prints: the servers, and the queue of each key, laid out as TVM's tutorials show it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

RULE = "-" * 30
KEY_WIDTH = len("key") + 7


def server_list(summary: Mapping[str, Any]) -> str:
    """One row a server: its address and its key."""
    rows = [f"{s['address']:>21}    {s['key']}" for s in summary["servers"]]
    head = ["Server List", RULE, "server-address           key", RULE]
    return "\n".join([*head, *rows, RULE])


def queue_status(summary: Mapping[str, Any]) -> str:
    """One row a key: how many devices it has, how many are free, how many clients wait."""
    queue = {k: q for k, q in summary["queue"].items() if q["total"] or q["pending"]}
    width = max([KEY_WIDTH, *[len(key) for key in queue]])
    title = f"{'key':<{width}}   total  free  pending"
    rule = "-" * (len(title) + 1)
    rows = [f"{key:<{width}}   {q['total']:<5}  {q['free']:<4}  {q['pending']}" for key, q in sorted(queue.items())]
    return "\n".join(["Queue Status", rule, title, rule, *rows, rule])


def report(address: str, summary: Mapping[str, Any]) -> str:
    """Everything: the tracker's address, its servers, its queues."""
    return "\n\n".join([f"Tracker address {address}", server_list(summary), queue_status(summary)])
