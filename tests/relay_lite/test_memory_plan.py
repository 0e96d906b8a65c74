"""Tensors that live at the same time never share bytes, and the arena is not much larger than it must be."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relay_lite.ir.errors import GraphError
from relay_lite.runtime.memory import Request, pack
from tests.amount import examples
from tests.relay_lite.memory_oracle import collisions, peak_bytes


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    out = []
    for _ in range(draw(st.integers(0, 40))):
        first = draw(st.integers(0, 20))
        out.append(Request(draw(st.integers(0, 5000)), first, first + draw(st.integers(0, 8))))
    return out


@examples(200)
@given(requests(), st.sampled_from([1, 64, 256]))
def test_no_bytes_are_shared_at_one_time(wanted: list[Request], alignment: int) -> None:
    offsets, total = pack(wanted, alignment)
    assert not collisions(wanted, offsets)
    assert all(o % alignment == 0 and o + r.nbytes <= total for o, r in zip(offsets, wanted, strict=True))
    assert total >= peak_bytes(wanted)
    apart = [replace(r, nbytes=r.nbytes + alignment) for r in wanted]
    assert not collisions(apart, offsets)


def test_the_check_sees_what_is_planted() -> None:
    rng = np.random.default_rng(3)
    seen = 0
    for _ in range(50):
        firsts = rng.integers(0, 10, 12)
        wanted = [Request(int(rng.integers(1, 900)), int(f), int(f + rng.integers(0, 6))) for f in firsts]
        offsets, _ = pack(wanted, 64)
        for k in range(len(wanted)):
            for j in range(k):
                if wanted[j].meets(wanted[k]):
                    moved = [*offsets[:k], offsets[j] + wanted[j].nbytes - 1, *offsets[k + 1 :]]
                    assert (j, k) in collisions(wanted, moved)
                    seen += 1
    assert seen > 500


def test_a_chain_needs_two_buffers() -> None:
    chain = [Request(1000, k, k + 1) for k in range(30)]
    assert pack(chain, 8)[1] == 2016 == peak_bytes(chain) + 2 * 8


def test_networks_are_packed_tightly() -> None:
    """Random chains with skips take a seventh more than the lower bound on average, and never twice as much."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(20):
        wanted = []
        for k in range(60):
            nbytes = 256 * int(rng.integers(1, 200))
            wanted.append(Request(nbytes, k, k + (1 if rng.random() < 0.7 else int(rng.integers(2, 5)))))
        ratios.append(pack(wanted, 256)[1] / peak_bytes(wanted))
    assert np.mean(ratios) < 8 / 7 and max(ratios) < 2


@pytest.mark.parametrize("bad", [(-1, 0, 0), (4, 3, 2)])
def test_what_is_no_request(bad: tuple[int, int, int]) -> None:
    with pytest.raises(GraphError, match="memory request"):
        Request(*bad)
