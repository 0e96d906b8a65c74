"""Batches in processes of their own: a crash or a hang costs one batch, and is then pinned to one seed."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from .outcome import Finding, Outcome

_FORK = get_context("fork")


class Work(Protocol):
    """What a batch does: the outcomes of some seeds, and `watch` is told where it is."""

    def __call__(self, seeds: list[Any], watch: Any) -> list[Outcome]: ...


@dataclass(eq=False)
class _Running:
    process: Any
    pipe: Connection
    batch: list[Any]
    at: str = "the start"
    since: float = field(default_factory=time.monotonic)

    def end(self) -> None:
        """Kill the process and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.join()
        self.pipe.close()


def farm(work: Work, seeds: Iterable[Any], jobs: int, size: int, limit: float) -> Iterator[Outcome]:
    """The outcomes of `seeds` in the order of their ends, `jobs` batches of `size` at a time.

    A batch that says nothing for `limit` seconds, or dies, is done again seed by seed; a single seed that does so is
    a hang or a crash.
    """
    batches, todo = _batches(seeds, size), deque[list[Any]]()
    running: list[_Running] = []
    try:
        while True:
            while len(running) < jobs and (batch := todo.popleft() if todo else next(batches, None)):
                running.append(_start(work, batch))
            if not running:
                return
            ready = wait([r.pipe for r in running], timeout=1.0)
            for r in list(running):
                outcomes = _news(r, r.pipe in ready, limit)
                if outcomes is None:
                    continue
                running.remove(r)
                r.end()
                if isinstance(outcomes, Finding) and len(r.batch) > 1:
                    todo.extendleft([[seed] for seed in reversed(r.batch)])
                elif isinstance(outcomes, Finding):
                    yield Outcome(_number(r.batch[0]), findings=[outcomes])
                else:
                    yield from outcomes
    finally:
        for r in running:
            r.end()


def _batches(seeds: Iterable[Any], size: int) -> Iterator[list[Any]]:
    batch: list[Any] = []
    for seed in seeds:
        batch.append(seed)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def _number(seed: Any) -> int:
    return seed if isinstance(seed, int) else int(seed.seed)


def _start(work: Work, batch: list[Any]) -> _Running:
    here, there = _FORK.Pipe(duplex=False)
    process = _FORK.Process(target=_child, args=(work, batch, there))
    process.start()
    there.close()
    return _Running(process, here, batch)


def _child(work: Work, batch: list[Any], pipe: Connection) -> None:
    os.setpgrp()
    outcomes = work(batch, lambda text: pipe.send(text))
    pipe.send(outcomes)
    pipe.close()


def _news(r: _Running, ready: bool, limit: float) -> list[Outcome] | Finding | None:
    """The outcomes of a batch that is done, a crash or a hang; None while it goes on."""
    try:
        while ready and r.pipe.poll():
            message = r.pipe.recv()
            if not isinstance(message, str):
                return list(message)
            r.at, r.since = message, time.monotonic()
    except EOFError:
        r.process.join(5)
        return Finding("crash", _phase(r.at), "any", f"the process ended with {r.process.exitcode}", r.at)
    if time.monotonic() - r.since > limit:
        return Finding("hang", _phase(r.at), "any", f"nothing for {limit:g} s", r.at)
    return None


def _phase(at: str) -> str:
    """What was being done, without the seed and the steps."""
    words = at.split(": ", 1)[-1]
    return words.split(" [[", 1)[0]
