"""What of a network's weights is fetched when: order of parameters, ranges of steps, shares of blocks."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from ansor.core.device.network_plan import ExecutionPlan, Step, Storage, TensorPlace
from codegen_cuda.overlap.prefetch import AHEAD, CACHE_SHARE, UNIT, laid_out, share

ALIGNMENT = 256
LARGE = 1 << 40


def plan(sizes: Sequence[int], uses: Sequence[Sequence[int]]) -> ExecutionPlan:
    """Steps that read parameters of so many bytes, by number, and write one output."""
    params = [TensorPlace(f"p{k}", (n,), "uint8", k) for k, n in enumerate(sizes)]
    output = TensorPlace("out", (4,), "uint8", len(sizes))
    storages = [*[Storage("param", n) for n in sizes], Storage("output", 4)]
    steps = [Step(f"k{k}", (*used, len(sizes)), (len(sizes),)) for k, used in enumerate(uses)]
    return ExecutionPlan(tuple(storages), tuple(steps), (), tuple(params), (output,), 0)


@st.composite
def plans(draw: st.DrawFn) -> ExecutionPlan:
    sizes = draw(st.lists(st.integers(1, 5000), max_size=8))
    step = st.lists(st.integers(0, len(sizes) - 1), max_size=3) if sizes else st.just([])
    return plan(sizes, draw(st.lists(step, min_size=1, max_size=8)))


@given(plans())
def test_every_parameter_is_fetched_once_and_in_time(network: ExecutionPlan) -> None:
    """By a step before its first use, `AHEAD` steps where there are as many; those of the first step by nobody."""
    weights = laid_out(network, ALIGNMENT, LARGE)
    assert set(weights.offsets) == {p.storage for p in network.params}
    covered: dict[int, int] = {}
    for k, found in enumerate(weights.fetched):
        for byte in range(found.start, found.start + found.nbytes):
            assert byte not in covered
            covered[byte] = k
    taken: set[int] = set()
    for s, start in weights.offsets.items():
        assert start % ALIGNMENT == 0
        own = range(start, start + network.storages[s].nbytes)
        assert own.stop <= weights.nbytes and not taken & set(own)
        taken |= set(own)
        uses = [k for k, step in enumerate(network.steps) if s in step.storages]
        wanted = max(uses[0] - AHEAD, 0) if uses and uses[0] > 0 else None
        assert {covered.get(byte) for byte in own} == {wanted}


@given(plans(), st.integers(0, 20000))
def test_a_step_fetches_its_share_of_the_cache_at_most(network: ExecutionPlan, cache: int) -> None:
    whole, held = laid_out(network, ALIGNMENT, LARGE), laid_out(network, ALIGNMENT, cache)
    assert held.offsets == whole.offsets
    for a, b in zip(whole.fetched, held.fetched, strict=True):
        assert b.start == a.start and b.nbytes <= min(a.nbytes, cache // CACHE_SHARE) and b.nbytes % UNIT == 0
        assert a.nbytes == b.nbytes or b.nbytes + UNIT > cache // CACHE_SHARE


@given(plans(), st.data())
def test_a_lent_parameter_is_fetched_where_it_is_the_larger_part(network: ExecutionPlan, data: st.DataObject) -> None:
    """And lies nowhere in the piece of memory of the others."""
    lent = data.draw(st.sets(st.sampled_from(range(len(network.params))))) if network.params else set()
    weights = laid_out(network, ALIGNMENT, LARGE, lent)
    assert set(weights.offsets) == {p.storage for p in network.params} - lent
    alone = laid_out(network, ALIGNMENT, LARGE)
    assert lent or alone == weights
    for k, found in enumerate(weights.fetched):
        if found.storage is not None:
            uses = [n for n, step in enumerate(network.steps) if found.storage in step.storages]
            assert found.storage in lent and 0 < uses[0] <= k + AHEAD and (k == 0 or uses[0] == k + AHEAD)
            assert found.start == 0 and found.nbytes <= network.storages[found.storage].nbytes


@given(st.integers(0, 1 << 24).map(lambda n: n * UNIT), st.integers(1, 1 << 20), st.integers(1, 200))
def test_the_blocks_that_run_first_fetch_all(nbytes: int, blocks: int, multiprocessors: int) -> None:
    each = share(nbytes, blocks, multiprocessors)
    assert each % UNIT == 0 and each * min(blocks, multiprocessors) >= nbytes
    assert each < nbytes / min(blocks, multiprocessors) + UNIT
