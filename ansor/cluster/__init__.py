"""The fleet: devices of many machines behind one tracker, on Ray (extra `[cluster]`), which is imported on demand.

Law: messages are data; what runs, runs in a worker process.
"""

from .runner import RPCRunner
from .session import RemoteSession, request_remote

__all__ = ["RPCRunner", "RemoteSession", "request_remote"]
