"""What a server says of itself is believed only where every part of it is what it should be."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from ansor.cluster.enrolment import enrolment_from_json, enrolment_from_text
from ansor.cluster.register import Register
from ansor.cluster.table import report
from ansor.cluster.tracker import TrackerActor
from ansor.core.errors import MeasureError

DEVICE = {"name": "10.0.0.1:4/ab/c:0", "label": "10.0.0.1:4 c 0", "kind": "c", "model": "AMD EPYC"}
GOOD: dict[str, Any] = {"server": "10.0.0.1:4/ab", "key": "k", "address": "10.0.0.1:4", "devices": [DEVICE]}
VALUES = (
    None,
    True,
    -1,
    0,
    1.5,
    float("nan"),
    "",
    "x" * 201,
    "a\nb",
    "\x1b[2J",
    "\u202e",
    [],
    {},
    [[]],
    ["x"],
    10**400,
)


def refused(text: str) -> str:
    """What the tracker answers, in one sentence of modest length."""
    actor = TrackerActor()
    said = json.loads(asyncio.run(actor.enroll(text)))
    assert "\n" not in said["refusal"] and len(said["refusal"]) < 1000
    assert json.loads(asyncio.run(actor.summary()))["servers"] == []
    return str(said["refusal"])


def test_what_is_right_is_taken() -> None:
    assert asyncio.run(TrackerActor().enroll(json.dumps(GOOD))) == "{}"
    assert enrolment_from_json(GOOD).devices[0].model == "AMD EPYC"


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("part", [*GOOD, *[f"devices/{name}" for name in DEVICE]])
def test_one_part_that_is_wrong(part: str, value: Any) -> None:
    """But for a server without devices, which may be."""
    place, _, inner = part.partition("/")
    facts = {**GOOD, place: [{**DEVICE, inner: value}] if inner else value}
    if (place, inner, value) == ("devices", "", []):
        assert enrolment_from_json(facts).devices == ()
    else:
        assert refused(json.dumps(facts)).startswith("enrolment: ")


def test_parts_that_are_missing_or_too_many() -> None:
    for name in GOOD:
        refused(json.dumps({k: v for k, v in GOOD.items() if k != name}))
    refused(json.dumps({**GOOD, "more": 1}))
    refused(json.dumps({**GOOD, "devices": [DEVICE, DEVICE]}))
    refused(json.dumps({**GOOD, "devices": [{**DEVICE, "name": str(k)} for k in range(1025)]}))


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "null", '"x"', " " * (1 << 21), json.dumps(GOOD)[:-1]])
def test_what_is_no_json(text: str) -> None:
    refused(text)


def test_a_device_of_another_server_is_not_taken_over() -> None:
    book = Register()
    book.enroll(enrolment_from_json(GOOD), 0.0)
    with pytest.raises(MeasureError, match="its devices belong to another server"):
        book.enroll(enrolment_from_json({**GOOD, "server": "other"}), 0.0)
    book.enroll(enrolment_from_json(GOOD), 1.0)
    assert report("x", book.summary()).count("10.0.0.1:4") == 1


@pytest.mark.parametrize("asked", [(1, "c", 1, 1.0), ("k", "", 1, 1.0), ("k", "c", "1", 1.0), ("k", "c", 1, "x"),
                                   ("k", "c", 1, float("nan")), ("k" * 300, "c", 1, 1.0)])  # fmt: skip
def test_questions_that_are_none(asked: Any) -> None:
    assert "none" in json.loads(asyncio.run(TrackerActor().ask(*asked)))


def test_random_texts_are_refused_or_read() -> None:
    rng = random.Random(0)
    text = json.dumps(GOOD)
    refused = []
    for _ in range(500):
        place = rng.randrange(len(text))
        cut = text[:place] + chr(rng.randrange(1, 300)) + text[place + rng.randrange(3) :]
        try:
            enrolment_from_text(cut)
        except MeasureError as error:
            refused.append(str(error))
    assert refused and not any("\n" in sentence for sentence in refused)
