"""Lines of records are cut as text, and their parts remembered: what is read is what the line says as a whole."""

import json
import random
import re
from typing import Any

import pytest

import ansor
from ansor.records.lines import (
    Tasks,
    dump_record_to_string,
    load_record_from_string,
    parse_line,
    parts_of,
    record_from_json,
)
from te_lite.errors import RecordError
from te_lite.schedule.loop_steps import FreePragma
from te_lite.schedule.step import steps_from_json, steps_from_text

TOKENS = ['], ["', ", [[], [[", ']]]], "r": ', '"', "\\", "[", "]", "{", "}", ", ", " ", "0", "-1", "1.5", "null",
          "NaN", '"i": [], ', '"x": 1, ', '"d": "gpu", ', '\\"', "é", "\t", "\x00"]  # fmt: skip


def said(line: str | bytes, tasks: Tasks | None) -> Any:
    """What a line says, read whole without tasks, else in parts; None for one that is no record."""
    try:
        inp, res = record_from_json(parse_line(line)) if tasks is None else load_record_from_string(line, tasks)
        return inp.task.facts(), inp.steps, res
    except RecordError:
        return None


def edited(line: str, rng: random.Random) -> str:
    """A line with some of its characters gone, doubled or replaced."""
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(line))
        match rng.randrange(4):
            case 0:
                line = line[:at] + line[at + rng.randint(1, 4) :]
            case 1:
                line = line[:at] + rng.choice(TOKENS) + line[at:]
            case 2:
                end = at + rng.randrange(40)
                line = line[:end] + line[at:]
            case 3:
                line = "".join([str(rng.randrange(1, 9)) if c.isdigit() and rng.random() < 0.1 else c for c in line])
    return line


@pytest.mark.parametrize("seed", range(4))
def test_parts_and_the_whole_say_the_same(record: Any, seed: int) -> None:
    rng, tasks, kept = random.Random(seed), Tasks(), 0
    good = [dump_record_to_string(*record()) for _ in range(4)]
    for _ in range(500):
        line = edited(rng.choice(good), rng)
        found = said(line, None)
        assert said(line, tasks) == found and said(line.encode(), tasks) == found
        kept += found is not None
    assert kept > 50


def with_parts(line: str, **changes: Any) -> str:
    data = json.loads(line)
    data["i"][0][0], data["i"][1][1] = changes.get("key", data["i"][0][0]), changes.get("steps", data["i"][1][1])
    return json.dumps({**data, **changes.get("more", {})})


def test_what_looks_like_a_place_to_cut_in_a_text_is_none(record: Any) -> None:
    line, tasks = dump_record_to_string(*record()), Tasks()
    for text in ('], ["', '"], ["CI", 2], ["', ', [[], [["CI', ']]]], "r": ', '\\"], ["', "\\", "[["):
        pragma = ["PRX", 2, 0, text]
        own = with_parts(line, key=json.dumps([text, 1]), steps=[["CI", 1], pragma, pragma], more={"v": "ansor-v1"})
        inp, _ = load_record_from_string(own, tasks)
        assert inp.steps[1:] == (FreePragma(2, 0, text),) * 2 and said(own, tasks) == said(own, None)
    cut = parts_of(line)
    assert cut is not None and json.loads(cut.task) == json.loads(line)["i"][0]
    twice = line.replace('"v":', f'"i": [{cut.task}, [[], []]], "v":')
    assert parts_of(twice) is not None and said(twice, tasks) is None


def test_lines_that_are_written_in_another_way_say_the_same(record: Any) -> None:
    line, tasks = dump_record_to_string(*record()), Tasks()
    data = json.loads(line)
    others = [
        json.dumps(data, separators=(",", ":")),
        f"{line} ",
        line.replace("], ", "],  "),
        line.replace("], ", "],\t"),
    ]
    others.append(json.dumps({key: data[key] for key in ("v", "r", "i")}))
    assert {said(other, tasks) for other in others} == {said(line, None)}
    empty = with_parts(line, steps=[])
    assert parts_of(empty) is None and load_record_from_string(empty, tasks)[0].steps == ()


def test_equal_steps_and_tasks_are_the_same_objects(record: Any) -> None:
    tasks = Tasks()
    line = dump_record_to_string(*record())
    (one, _), (two, _) = load_record_from_string(line, tasks), load_record_from_string(line.encode(), tasks)
    assert one.task is two.task and all(a is b for a, b in zip(one.steps, two.steps, strict=True)) and one.steps
    spaced, _ = load_record_from_string(json.dumps(json.loads(line), separators=(",", ":")), tasks)
    assert spaced.task is one.task and all(a is b for a, b in zip(spaced.steps, one.steps, strict=True))


def test_a_long_step_is_read_and_not_remembered() -> None:
    data = [["PRX", 0, 0, "a" * 150], ["FU", 0, [*range(64)]], ["CI", 1]]
    text = json.dumps(data).replace("150", "1").replace(", 0, 0", "," + " " * 2000 + "0, 0")
    assert steps_from_text(text) == steps_from_text(json.dumps(data)) == steps_from_json(data)
    assert steps_from_text("[]") == []
    for bad in ('[["CI", 1], ["XX", 2]]', '[["CI"]]', '[["CI", 1.5], ["CI", 1]]'):
        with pytest.raises(RecordError):
            steps_from_text(bad)
    for bad in ('[["CI", 1], ["CI", 2]', '[["CI", 1] ["CI", 2]]', '[["]]'):
        with pytest.raises(ValueError, match=r"Expecting|Unterminated|Extra"):
            steps_from_text(bad)


def test_a_log_that_learns_of_a_workload_forgets_the_tasks_before(record: Any) -> None:
    tasks = Tasks()
    before, _ = load_record_from_string(dump_record_to_string(*record()), tasks)
    tasks.clear()
    after, _ = load_record_from_string(dump_record_to_string(*record()), tasks)
    assert after.task is not before.task and after.task.facts() == before.task.facts()
    assert isinstance(after, ansor.MeasureInput)


@pytest.mark.parametrize("more", [{"x": 1}, {"r": None}, {"i": None}])
def test_the_sentence_on_keys_names_those_that_are_there(record: Any, more: dict[str, Any]) -> None:
    data = {key: value for key, value in {**json.loads(dump_record_to_string(*record())), **more}.items() if value}
    with pytest.raises(
        RecordError, match=re.escape(f"the keys must be i, r, v, and perhaps d, got keys={sorted(data)}")
    ):
        load_record_from_string(json.dumps(data))
