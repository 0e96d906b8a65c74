"""A search that is killed again and again and resumed from its log: nothing is lost, nothing is measured twice.

Each attempt is a process that a warm one forks.  It measures with the analytical runner, writes a real journal, and
says through a pipe which program it is about to measure and which record is on the disk; it is killed a random time
after a random number of records.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import ansor
from ansor.core.tasks.measure_values import BuildResult, MeasureInput, MeasureResult
from ansor.offline.analytical import AnalyticalRunner
from ansor.offline.common import NoBuilder
from ansor.space.duplicates import program_text
from tests.amount import some
from tests.ansor.conftest import matmul

TRIALS, KILLS, PER_ROUND = some(60, 36), some(10, 6), 8
MODELS = {"random": lambda: ansor.RandomModel(1), "learning": lambda: ansor.XGBModel(num_warmup_sample=10, seed=1)}
PARAMS = {"evolutionary_search_population": 32, "evolutionary_search_num_iters": 1}


def task_on(target: str) -> ansor.SearchTask:
    hardware = ansor.HardwareParams(num_cores=4, target="c") if target == "c" else None
    return ansor.SearchTask(matmul, (13, 22, 15), target=target, hardware_params=hardware)


class Speaker:
    """Writes words into a pipe, one line each."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def say(self, word: str, inp: MeasureInput) -> None:
        os.write(self.pipe, f"{word} {program(inp)}\n".encode())


class SpeakingRunner(AnalyticalRunner):
    """Says which program it is about to measure."""

    def __init__(self, speaker: Speaker) -> None:
        super().__init__(noise=0.2)
        self.speaker = speaker

    def run(self, inp: MeasureInput, built: BuildResult) -> MeasureResult:
        self.speaker.say("measure", inp)
        return super().run(inp, built)


class Acknowledge:
    """A measure callback: what it is told of is in the log by then."""

    def __init__(self, speaker: Speaker) -> None:
        self.speaker = speaker

    def callback(self, policy: Any, inputs: Sequence[MeasureInput], results: Sequence[MeasureResult]) -> None:
        self.speaker.say("stored", inputs[0])


def program(inp: MeasureInput) -> str:
    """What tells the program of a candidate from others, in no more than one line."""
    return json.dumps(program_text(inp.state))


def search(target: str, model_name: str, log: Path, pipe: int) -> None:
    """What a user does: tune, or resume when there is a log."""
    task, model, speaker = task_on(target), MODELS[model_name](), Speaker(pipe)
    recorder = ansor.RecordToFile(log)
    done = len(ansor.RecordReader(log).read_lines()[0]) if log.exists() else 0
    if done and isinstance(model, ansor.XGBModel):
        model.update_from_file(log)
    callbacks = [ansor.PreloadMeasuredStates(log)] if done else []
    policy = ansor.SketchPolicy(task, model, PARAMS, seed=1, verbose=0, init_search_callbacks=callbacks)
    options = ansor.TuningOptions(
        TRIALS - done, num_measures_per_round=PER_ROUND, verbose=0, builder=NoBuilder(), runner=SpeakingRunner(speaker),
        measure_callbacks=[recorder, Acknowledge(speaker)],
    )  # fmt: skip
    if done < TRIALS:
        task.tune(options, search_policy=policy)


def attempt(target: str, model: str, log: Path, records: int | None, pause: float) -> tuple[list[str], bool]:
    """Fork a search and kill it `pause` seconds after so many records (None: never); its words, whether it ended."""
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.close(receive)
            search(target, model, log, send)
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(send)
    heard: list[str] = []
    with os.fdopen(receive) as stream:
        while records is None or sum(word.startswith("stored") for word in heard) < records:
            line = stream.readline()
            if not line:
                break
            heard.append(line.rstrip("\n"))
        if records is not None:
            time.sleep(pause)
            os.kill(child, signal.SIGKILL)
        heard += [line.rstrip("\n") for line in stream if line.endswith("\n")]
    _, status = os.waitpid(child, 0)
    return heard, os.waitstatus_to_exitcode(status) == 0


def tear(log: Path, chance: random.Random) -> None:
    """Leave behind the last record what a crash of the machine can leave: a part of a line."""
    line = log.read_bytes().splitlines()[-1]
    with open(log, "ab") as file:
        file.write(line[: chance.randrange(1, len(line))])


def programs(log: Path) -> list[str]:
    """The programs of a log, in order; none when there is no log."""
    return [program(inp) for inp, _ in ansor.RecordReader(log)] if log.exists() else []


def killed_again_and_again(target: str, model: str, directory: Path, seed: int) -> dict[str, Any]:
    """A search killed `KILLS` times, then left alone: the words of each attempt, and what the log held before it."""
    chance, log, attempts = random.Random(seed), directory / f"{target}_{model}.json", []
    for k in range(KILLS + 1):
        before = programs(log)
        if 0 < len(before) < TRIALS and chance.random() < 0.3:
            tear(log, chance)
        records = None if k == KILLS else chance.randrange(TRIALS // KILLS + 1)
        heard, ended = attempt(target, model, log, records, chance.choice((0.0, chance.uniform(0, 0.02))))
        attempts.append({"before": before, "heard": heard, "ended": ended})
    return {"attempts": attempts, "log": os.fspath(log)}


CASES = (("c", "learning"), ("cuda", "random"))


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What happened, by case; made in a process that has no thread but its own, as `fork` wants it."""
    directory = tmp_path_factory.mktemp("killed")
    path = os.pathsep.join(p or os.getcwd() for p in sys.path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.ansor.test_resume", os.fspath(directory)],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    print(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.long
@pytest.mark.parametrize("case", CASES, ids=" ".join)
def test_a_killed_search_is_resumed(case: tuple[str, str], stories: dict[str, Any]) -> None:
    story = stories[" ".join(case)]
    attempts = story["attempts"]
    reader = ansor.RecordReader(story["log"])
    final = [program(inp) for inp, _ in reader]
    assert len(final) == len(set(final)) == TRIALS and reader.num_bad == 0
    assert attempts[-1]["ended"] and sum(a["ended"] for a in attempts[:-1]) < KILLS
    for now, after in zip(attempts, [*[a["before"] for a in attempts[1:]], final], strict=True):
        measured = [word.partition(" ")[2] for word in now["heard"] if word.startswith("measure ")]
        stored = [word.partition(" ")[2] for word in now["heard"] if word.startswith("stored ")]
        assert after[: len(now["before"])] == now["before"]
        assert set(stored) <= set(after[len(now["before"]) :]) <= set(measured)
        assert not set(measured) & set(now["before"]) and len(set(measured)) == len(measured)


def main(directory: Path) -> None:
    print(json.dumps({" ".join(c): killed_again_and_again(*c, directory, seed) for seed, c in enumerate(CASES)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
