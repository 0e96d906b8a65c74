"""The tracker's book without a network: nobody shares a device, nobody is forgotten, the dead leave nothing behind."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansor.cluster.message import pack, unpack
from ansor.cluster.register import Register
from ansor.cluster.table import queue_status, report
from ansor.core.errors import MeasureError
from tests.amount import examples

TUTORIAL = """\
Queue Status
----------------------------------
key          total  free  pending
----------------------------------
pynq         6      6     0
rpi3b        11     11    0
----------------------------------"""


def enroll(book: Register, server: str, key: str = "k", count: int = 1, model: str = "m", now: float = 0.0) -> None:
    devices = [{"name": f"{server}/{k}", "label": f"{server} {k}", "kind": "c", "model": model} for k in range(count)]
    facts = {"server": server, "key": key, "address": f"10.0.0.1:{server}", "devices": devices}
    book.enroll(facts, now)


class Waiting:
    """Somebody who asked; `got` is the answer."""

    def __init__(self, book: Register, client: str, priority: int = 1, key: str = "k", now: float = 0.0) -> None:
        self.got: dict[str, Any] = {}
        book.ask(key, client, priority, 5.0, self.got.update, now)


def queue(book: Register, key: str = "k") -> tuple[int, int, int]:
    facts = book.summary()["queue"].get(key, {"total": 0, "free": 0, "pending": 0})
    return facts["total"], facts["free"], facts["pending"]


def test_a_device_of_another_server_is_not_taken_over() -> None:
    book = Register()
    enroll(book, "1")
    book._devices["2/0"] = replace(book._devices["1/0"], name="2/0")
    with pytest.raises(MeasureError, match="its devices belong to another server"):
        enroll(book, "2")
    enroll(book, "1", now=1.0)
    assert report("x", book.summary()).count("10.0.0.1:1") == 1


def test_priorities_first_then_the_order_of_arrival() -> None:
    book = Register()
    asked = [Waiting(book, f"client {k}", priority) for k, priority in enumerate((1, 2, 1, 3, 2))]
    enroll(book, "1")
    order = []
    for _ in asked:
        (k,) = [k for k, a in enumerate(asked) if a.got and k not in order]
        order.append(k)
        book.give_back(asked[k].got["lease"])
    assert order == [3, 1, 4, 0, 2]


def test_a_client_gets_the_device_again_that_it_had() -> None:
    book = Register()
    enroll(book, "1", count=3)
    first = {name: Waiting(book, name).got for name in "abc"}
    for facts in first.values():
        book.give_back(facts["lease"])
    for name in "cab":
        assert Waiting(book, name).got["device"] == first[name]["device"]


def test_other_models_are_refused_under_the_same_key() -> None:
    book = Register()
    enroll(book, "1", model="H200")
    with pytest.raises(
        MeasureError, match=r"^key 'k': all devices under one key must be of one model, .*'H200'.*'A100'"
    ):
        enroll(book, "2", model="A100")
    enroll(book, "2", key="other", model="A100")
    enroll(book, "1", model="A100")
    assert queue(book) == (1, 1, 0) and queue(book, "other") == (1, 1, 0)


def test_a_silent_server_is_struck_out_and_a_silent_client_loses_its_device() -> None:
    book = Register(patience=10.0)
    enroll(book, "1", count=2)
    enroll(book, "2")
    held, waits = Waiting(book, "dead"), [Waiting(book, "alive") for _ in range(3)]
    assert held.got and [bool(w.got) for w in waits] == [True, True, False]
    for now in (5.0, 9.0, 12.0):
        assert book.server_beat("1", ["1/0", "1/1"], now)
        book.client_beat("alive", now)
        book.tidy(now)
    assert all(w.got for w in waits) and queue(book) == (2, 0, 0)
    assert not book.server_beat("2", ["2/0"], 13.0), "it has to enroll anew"


def test_a_lost_device_rests_until_its_host_answers() -> None:
    book = Register()
    enroll(book, "1")
    book.give_back(Waiting(book, "a").got["lease"], lost=True)
    asked = Waiting(book, "a")
    book.server_beat("1", [], 1.0)
    assert not asked.got and queue(book) == (1, 1, 1)
    book.server_beat("1", ["1/0"], 2.0)
    assert asked.got["device"] == "1/0"


def test_waiting_for_a_key_without_devices_ends() -> None:
    book = Register()
    asked = Waiting(book, "a")
    for now in (0.0, 4.0, 6.0):
        book.client_beat("a", now)
        book.tidy(now)
        assert bool(asked.got) == (now > 5)
    assert "no device under the key 'k' for 5 s" in asked.got["none"] and queue(book) == (0, 0, 0)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["enroll", "leave", "ask", "give_back", "lost", "depart", "beat", "tidy"]),
        st.integers(0, 3), st.integers(1, 3),
    ),
    max_size=60,
)  # fmt: skip


@examples(200)
@given(EVENTS)
def test_whatever_happens_no_device_has_two_holders(events: list[tuple[str, int, int]]) -> None:
    """A plain model beside it: who holds what, and that nobody waits while a device is free and answers."""
    book, now = Register(patience=5.0), 0.0
    asked: list[tuple[str, dict[str, Any]]] = []
    given_back: set[int] = set()
    for what, number, count in events:
        now += 0.5
        match what:
            case "enroll":
                enroll(book, str(number), count=count, now=now)
            case "leave":
                book.leave(str(number))
            case "ask":
                asked.append((f"client {number}", {}))
                book.ask("k", f"client {number}", count, 100.0, asked[-1][1].update, now)
            case "give_back" | "lost":
                held = [f["lease"] for _, f in asked if "lease" in f and f["lease"] not in given_back]
                if held:
                    lease = held[number % len(held)]
                    given_back.add(lease)
                    book.give_back(lease, what == "lost")
            case "depart":
                book.depart(f"client {number}")
            case "beat":
                book.server_beat(str(number), [f"{number}/{k}" for k in range(3)], now)
            case "tidy":
                book.tidy(now)
        devices = list(book._devices.values())
        leases = [d.lease for d in devices if d.lease]
        assert len(leases) == len(set(leases)) and not set(leases) & given_back
        total, free, pending = queue(book)
        assert total == len(devices) and free == total - len(leases)
        assert not pending or all(d.lease or d.rests for d in devices)
    for number in range(4):
        book.depart(f"client {number}")
        book.leave(str(number))
    assert all(facts for _, facts in asked) and queue(book) == (0, 0, 0)


def test_the_table_is_that_of_the_tutorial() -> None:
    rows = {"rpi3b": {"total": 11, "free": 11, "pending": 0}, "pynq": {"total": 6, "free": 6, "pending": 0}}
    assert queue_status({"queue": rows}) == TUTORIAL
    idle = {**rows, "gone": {"total": 0, "free": 0, "pending": 0}}
    assert queue_status({"queue": idle}) == TUTORIAL


def test_long_keys_widen_the_table() -> None:
    text = queue_status({"queue": {"a" * 20: {"total": 100, "free": 10, "pending": 1}}}).splitlines()
    assert text[2] == "key" + " " * 20 + "total  free  pending" and text[4] == "a" * 20 + "   100    10    1"
    assert text[1] == "-" * (len(text[2]) + 1)


def test_the_report_lists_servers() -> None:
    book = Register()
    enroll(book, "2222")
    assert report("10.0.0.1:9190", book.summary()).splitlines()[:7] == [
        "Tracker address 10.0.0.1:9190", "", "Server List", "-" * 30, "server-address           key", "-" * 30,
        "        10.0.0.1:2222    k",
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- messages

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.long
@examples(50)
@given(st.dictionaries(st.text().filter("files".__ne__), JSON), st.dictionaries(st.text(), st.binary()))
def test_messages_come_back(header: dict[str, Any], files: dict[str, bytes]) -> None:
    assert unpack(pack(header, files)) == (header, files)


@settings(deadline=None)
@given(st.binary(max_size=60), st.integers(0, 80), st.integers(0, 255))
def test_broken_messages_are_refused(noise: bytes, place: int, value: int) -> None:
    whole = pack({"op": "run", "lease": 7}, {"0/program.c": b"int main(void);"})
    for wrong in (noise, whole[:place], whole + b"x", whole[:place] + bytes([value]) + whole[place + 1 :]):
        try:
            header, files = unpack(wrong)
        except MeasureError as error:
            assert str(error).startswith("message: ")
            continue
        assert isinstance(header, dict) and all(isinstance(data, bytes) for data in files.values())
