"""`autotvm.measure`: sessions on devices of a fleet."""

from __future__ import annotations

from ansor.cluster import request_remote

__all__ = ["request_remote"]
