"""What a server says of itself when it joins a fleet: read from JSON, every part of it checked.

Names are shown in tables, written into logs and looked up, so they are short and printable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from te_lite.errors import require

from ..core.errors import MeasureError

SUBJECT = "enrolment"
MOST_BYTES, MOST_CHARACTERS, MOST_DEVICES = 1 << 20, 200, 1024
_KIND = re.compile(r"[a-z][a-z0-9_]{0,31}")
_ADDRESS = re.compile(r"[0-9A-Za-z.:\[\]_-]{1,200}:\d{1,5}")


@dataclass(frozen=True)
class EnrolledDevice:
    """`name` is that of its host, `kind` a target kind; devices of one `model` have costs that compare."""

    name: str
    label: str
    kind: str
    model: str


@dataclass(frozen=True)
class Enrolment:
    """The devices of a server, which is called `server` and reached at `address`, under a key."""

    server: str
    key: str
    address: str
    devices: tuple[EnrolledDevice, ...]


def enrolment_from_text(text: str) -> Enrolment:
    """Raises MeasureError, in one sentence, for anything that is no enrolment."""
    fits = isinstance(text, str) and len(text) <= MOST_BYTES
    require(fits, MeasureError, SUBJECT, f"a text of at most {MOST_BYTES} characters is needed")
    try:
        facts = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MeasureError(f"{SUBJECT}: it is not JSON ({type(error).__name__})") from error
    return enrolment_from_json(facts)


def enrolment_from_json(facts: Any) -> Enrolment:
    """`{"server", "key", "address", "devices": [{"name", "label", "kind", "model"}]}`.  Raises MeasureError."""
    _require_keys(facts, ("server", "key", "address", "devices"))
    address = name_of(facts["address"], "address")
    require(_ADDRESS.fullmatch(address), MeasureError, SUBJECT, "the address is HOST:PORT", got=address)
    devices = facts["devices"]
    fits = isinstance(devices, list) and len(devices) <= MOST_DEVICES
    require(fits, MeasureError, SUBJECT, f"a list of at most {MOST_DEVICES} devices is needed")
    found = tuple([_device(d) for d in devices])
    names = [d.name for d in found]
    require(len(set(names)) == len(names), MeasureError, SUBJECT, "the names of devices must differ", got=names)
    return Enrolment(name_of(facts["server"], "server"), name_of(facts["key"], "key"), address, found)


def _device(facts: Any) -> EnrolledDevice:
    _require_keys(facts, ("name", "label", "kind", "model"))
    kind = name_of(facts["kind"], "kind")
    require(_KIND.fullmatch(kind), MeasureError, SUBJECT, "a kind is a word of small letters", got=kind)
    return EnrolledDevice(name_of(facts["name"], "name"), name_of(facts["label"], "label"), kind,
                          name_of(facts["model"], "model"))  # fmt: skip


def _require_keys(facts: Any, wanted: tuple[str, ...]) -> None:
    fits = isinstance(facts, Mapping) and set(facts) == set(wanted)
    require(fits, MeasureError, SUBJECT, f"an object of {', '.join(wanted)} is needed", got=facts)


def name_of(value: Any, what: str) -> str:
    """A name: 1 to 200 printable characters.  Raises MeasureError."""
    fits = isinstance(value, str) and 0 < len(value) <= MOST_CHARACTERS and value.isprintable()
    law = f"the {what} must have 1 to {MOST_CHARACTERS} printable characters"
    require(fits, MeasureError, SUBJECT, law, got=value)
    return str(value)
