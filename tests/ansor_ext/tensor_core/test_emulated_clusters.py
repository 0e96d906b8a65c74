"""Clusters of blocks on the block emulator: their barrier, arrivals and copies at other blocks, and what is wrong."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from codegen_cuda.emulation.emulated_maps import tensor_map
from codegen_cuda.emulation.emulator import Launch, Memory, run, run_launches
from codegen_cuda.emulation.emulator_report import EmulatorError

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")

HEAD = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) TensorMap { u64 opaque[16]; };
#define DEVICE static __device__ __forceinline__
DEVICE u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE u32 rank_in_cluster() { u32 r; asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r)); return r; }
DEVICE u32 at_block(u32 place, u32 rank) {
  u32 there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(place), "r"(rank));
  return there;
}
DEVICE void meet_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
DEVICE void meet_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
DEVICE void meet() { meet_arrive(); meet_wait(); }
DEVICE void init(u32 b, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count)); }
DEVICE void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void expect(u32 b, u32 n) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(b), "r"(n) : "memory");
}
DEVICE void arrive_far(u32 b) { asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(b)); }
DEVICE void await(u32 b, u32 parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1;"
               " @!p bra again; }" ::"r"(b), "r"(parity) : "memory");
}
DEVICE void to_all(u32 to, const TensorMap &m, int x, int y, u32 b, unsigned short mask) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
               " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(&m), "r"(x), "r"(y), "r"(b), "h"(mask) : "memory");
}
DEVICE void row_to_all(u32 to, const int *from, u32 bytes, u32 b, unsigned short mask) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
               " [%0], [%1], %2, [%3], %4;" ::"r"(to), "l"((u64)from), "r"(bytes), "r"(b), "h"(mask) : "memory");
}
DEVICE void row(u32 to, const int *from, u32 bytes, u32 b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"((u64)from), "r"(bytes), "r"(b) : "memory");
}
"""


def kernel(parameters: str, body: str, dims: str = "2, 1, 1") -> str:
    return f"""{HEAD}extern "C" __global__ void __cluster_dims__({dims}) __launch_bounds__(128) k({parameters}) {{
  __shared__ __align__(1024) int x[2][1024];
  __shared__ __align__(1024) int own[2][32];
  __shared__ __align__(8) u64 b[4];
  const int t = threadIdx.x;
  const u32 rank = rank_in_cluster();
  {body}
}}
"""


def refused(body: str, message: str, grid: int = 2, threads: int = 128) -> None:
    with pytest.raises(EmulatorError, match=message):
        run(kernel("int *out", body), "k", grid, threads, [np.zeros(1024, np.int32)])


def test_blocks_know_their_places() -> None:
    """Each block has shared memory of its own, and as many barriers as it likes."""
    body = """for (int i = 0; i <= rank; ++i) { x[i % 2][t] = blockIdx.x * 1000 + t + i; __syncthreads(); }
  u32 count;
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  out[blockIdx.x * 128 + t] = x[rank % 2][127 - t] * 100 + rank * 10 + count;"""
    out = np.zeros((12, 128), np.int32)
    run(kernel("int *out", body, "4"), "k", 12, 128, [out])
    block, thread = np.arange(12)[:, None], np.arange(128)
    rank = block % 4
    np.testing.assert_array_equal(out, (block * 1000 + 127 - thread + rank) * 100 + rank * 10 + 4)


RING = """const u32 full = at(b), empty = at(b + 2);
  if (t == 0) {
    for (int s = 0; s < 2; ++s) { init(full + 8 * s, 1); init(empty + 8 * s, BLOCKS); }
    fence_init();
  }
  meet();
  int sum = 0;
  if (t == 0) {
    for (int i = 0; i < 5; ++i) {
      const int s = i % 2;
      await(empty + 8 * s, (i / 2 & 1) ^ 1);
      expect(full + 8 * s, 4096 + 128);
      row(at(own[s]), given + (blockIdx.x * 5 + i) * 32, 128, full + 8 * s);
      to_all(at(x[s]) + rank * (4096 / BLOCKS), M, 0, (blockIdx.x / BLOCKS * 5 + i) * 32 + rank * (32 / BLOCKS),
             full + 8 * s, (1 << BLOCKS) - 1);
    }
  } else if (t >= 32 && t < 64) {
    for (int i = 0; i < 5; ++i) {
      const int s = i % 2;
      await(full + 8 * s, i / 2 & 1);
      for (int k = 0; k < 32; ++k) sum += x[s][k * 32 + t - 32] * own[s][k];
      __syncwarp();
      if (t < 32 + BLOCKS) arrive_far(at_block(empty + 8 * s, t - 32));
    }
    out[blockIdx.x * 32 + t - 32] = sum;
  }
  meet();"""
"""Blocks of a cluster fetch parts of tiles that all of them multiply by what each fetches for itself."""


def multiplied(blocks: int, ring: str = RING, check: bool = True, grid: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """What the blocks of two clusters compute, and what they should."""
    rng = np.random.default_rng(0)
    tiles, given = rng.integers(0, 99, (2, 5, 32, 32), np.int32), rng.integers(0, 99, (2, blocks, 5, 32), np.int32)
    out = np.zeros((2, blocks, 32), np.int32)
    values = [tiles, given, out, tensor_map(tiles.reshape(-1, 32), 0, (32 // blocks, 32))]
    source = kernel("const __grid_constant__ TensorMap M, const int *given, int *out", ring, f"{blocks}, 1, 1")
    launch = Launch("k", (grid or 2 * blocks, 1, 1), (128, 1, 1), (3, 1, 2), 0)
    memories = [Memory(f"argument_{i}", value, True) for i, value in enumerate(values)]
    run_launches(source.replace("BLOCKS", str(blocks)), [launch], memories, check, 60.0)
    return out, np.einsum("cikl,cbik->cbl", tiles, given)


@pytest.mark.parametrize("blocks, check", [(2, True), (4, True), (8, False)])
def test_a_ring_of_several_blocks(blocks: int, check: bool) -> None:
    got, want = multiplied(blocks, check=check)
    np.testing.assert_array_equal(got, want)


EARLY = "await(empty + 8 * s, (i / 2 & 1) ^ 1);"
FAR = "if (t < 32 + BLOCKS) arrive_far(at_block(empty + 8 * s, t - 32));"
CONSUMES = "i < 5; ++i) {\n      const int s = i % 2;\n      await(full"
LAST = "= sum;\n  }\n  meet();"


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"  meet();\n  int sum": "  __syncthreads();\n  int sum"},
         "which thread .0, 0, 0. of block . initialises without"),
        ({"  meet();\n  int sum": "  int sum"}, "where none was initialised|initialises without a barrier"),
        ({"    fence_init();": ""}, "without fence.mbarrier_init behind its initialisation"),
        ({LAST: "= sum;\n  }\n"}, "arrives at a barrier of block . of the cluster, which (has ended|may have ended)"),
        ({LAST: "= sum;\n  }\n  meet_arrive();"}, "which (has ended|may have ended)"),
        ({EARLY: ""}, "race|once too often"),
        ({FAR: "if (t == 32) arrive_far(at_block(empty + 8 * s, rank));"}, "deadlock: .* lacks 1 of 2 arrivals"),
        ({FAR: "if (t == 32) arrive_far(at_block(empty + 8 * s, rank));", "8 * s, BLOCKS)": "8 * s, 1)"},
         "race: .* writes byte .* of block|race: .* of block"),
        ({"      __syncwarp();\n": ""}, "race: .* writes byte"),
        ({"(1 << BLOCKS) - 1)": "1 << rank)"}, "deadlock: .* lacks 0 of 1 arrivals and 2048 bytes"),
        ({"(1 << BLOCKS) - 1)": "7)"}, "copies to blocks 0x7 of a cluster of 2"),
        ({"(1 << BLOCKS) - 1)": "0)"}, "copies to blocks 0 of a cluster of 2"),
        ({"4096 + 128": "2048 + 128"}, "expects 2176 bytes, and 4224 are on their way"),
        ({"4096 + 128": "8192 + 128"}, "deadlock: .* lacks 0 of 1 arrivals and 4096 bytes"),
        ({"rank * (4096 / BLOCKS)": "4096 - rank * 64"}, "out of bounds|race"),
        ({CONSUMES: CONSUMES.replace("5", "4")},
         "bytes are on their way, for which nobody waited"),
    ],
)  # fmt: skip
@pytest.mark.one_in(3)
def test_faults_of_the_ring(changes: dict[str, str], message: str) -> None:
    ring = RING
    for old, new in changes.items():
        assert ring.count(old) == 1
        ring = ring.replace(old, new)
    with pytest.raises(EmulatorError, match=message):
        multiplied(2, ring)


def test_grids_are_whole_clusters() -> None:
    with pytest.raises(EmulatorError, match="clusters of 2 blocks, and a grid of 3, which is no multiple of that"):
        multiplied(2, grid=3)


def test_rows_go_to_all_blocks() -> None:
    """One block fetches for all, and nobody waits before the others are there."""
    body = """if (t == 0) { init(at(b), 1); fence_init(); expect(at(b), 512); }
  meet();
  if (t == 0 && rank == 1) row_to_all(at(x[1]), out, 512, at(b), 3);
  await(at(b), 0);
  const int value = x[1][t];
  meet();
  out[blockIdx.x * 128 + t] = value + 1000 * blockIdx.x;"""
    out = np.zeros((2, 128), np.int32)
    out[0] = np.arange(128) * 3
    want = np.arange(128) * 3 + np.array([[0], [1000]])
    run(kernel("int *out", body), "k", 2, 128, [out])
    np.testing.assert_array_equal(out, want)
    refused(body.replace("value = x[1][t];\n  meet();", "value = x[1][t];"), "race: .* of argument_0")


def test_blocks_of_a_cluster_share_global_memory() -> None:
    """In the order of their barrier, whose two halves stand apart, and in no other one."""
    body = """if (rank == 0) out[t] = t * 7;
  meet_arrive();
  x[0][t] = t;
  meet_wait();
  if (rank == 1) out[128 + t] = out[127 - t] + x[0][t];"""
    out = np.zeros((2, 128), np.int32)
    run(kernel("int *out", body), "k", 2, 128, [out])
    np.testing.assert_array_equal(out, [np.arange(128) * 7, (127 - np.arange(128)) * 7 + np.arange(128)])
    refused(body.replace("meet_arrive();", "").replace("meet_wait();", "__syncthreads();"), "race: .* of argument_0")
    late = body.replace("if (rank == 0) out[t] = t * 7;", "").replace("x[0][t] = t;", "x[0][t] = t; out[t] = t;")
    refused(late, "race: .* of argument_0")


def test_threads_that_have_ended_are_not_waited_for() -> None:
    body = "if (t >= 64) return; out[blockIdx.x * 128 + t] = 1; meet(); out[(blockIdx.x ^ 1) * 128 + t] += 1;"
    out = np.zeros((2, 128), np.int32)
    run(kernel("int *out", body), "k", 2, 128, [out])
    np.testing.assert_array_equal(out, np.repeat([[2, 0]], 64, axis=1).repeat(2, axis=0))


def test_clusters_along_y() -> None:
    """Whose blocks do not follow each other in the grid."""
    body = """const int block = blockIdx.y * gridDim.x + blockIdx.x;
  x[0][t] = block; __syncthreads();
  out[block * 128 + t] = x[0][t] * 10 + rank;
  meet();
  if (rank == 0) out[block * 128 + t] += out[(block + 3) * 128 + t] * 1000;"""
    out = np.zeros((12, 128), np.int32)
    run(kernel("int *out", body, "1, 2, 1"), "k", (3, 4), 128, [out])
    block = np.arange(12)
    rank = block // 3 % 2
    want = block * 10 + rank + np.where(rank == 0, ((block + 3) * 10 + 1) * 1000, 0)
    np.testing.assert_array_equal(out, np.repeat(want[:, None], 128, axis=1))
    with pytest.raises(EmulatorError, match="clusters of 2 blocks, and a grid of 3, which is no multiple"):
        run(kernel("int *out", body, "1, 2, 1"), "k", (2, 3), 128, [out])


INIT = "if (t == 0) { init(at(b), 1); fence_init(); } meet();"


@pytest.mark.parametrize(
    "body, message",
    [
        ("if (t != 5) meet(); else meet_arrive(), await(at(b), 0);", "where none was initialised"),
        ("if (t != 5 || rank) meet(); else __syncthreads();",
         "deadlock: .* waits at the barrier of the cluster for 1 of 256"),
        ("meet_arrive(); meet_arrive();", "arrives at the barrier of the cluster again without waiting"),
        ("meet_wait();", "waits at the barrier of the cluster, where it has not arrived"),
        ("out[t] = at_block(at(b), 2);", "names block 2 of a cluster of 2"),
        ("if (t == 0) arrive_far(at_block(at(b), 1));", "uses a barrier at byte 0 of b of block 1, where none was"),
        (INIT + "if (t == 0) arrive_far(at_block(at(x[2]), 1));", "out of bounds|where none was initialised"),
        (INIT + "if (rank == 1) return; __syncthreads(); __syncthreads(); "
         "if (t == 0) row_to_all(at(x), out, 16, at(b), 3);",
         "copies to block 1 of the cluster, which has ended"),
        (INIT + "if (rank == 1) return; if (t == 0) { expect(at(b), 16); row_to_all(at(x), out, 16, at(b), 3); } "
         "await(at(b), 0);",
         "ends while 16 bytes are on their way"),
        (INIT + "if (rank == 1) return; __syncthreads(); if (t == 0) arrive_far(at_block(at(b), 1));",
         "arrives at a barrier of block 1 of the cluster, which has ended"),
        (INIT + "if (t == 0 && rank == 0) arrive_far(at_block(at(b), 1)); "
         "if (rank == 1) { __syncthreads(); __syncthreads(); }",
         "arrives at a barrier of block 1 of the cluster, which may have ended: it does not wait for that"),
        (INIT + "if (t == 0 && rank == 0) arrive_far(at_block(at(b), 1)); if (rank == 0) await(at(b), 0);",
         "deadlock: .* waits for phase 0 of the barrier at byte 0 of b, which lacks 1 of 1"),
        (INIT + "if (t == 0 && rank == 0) { arrive_far(at_block(at(b), 1)); arrive_far(at_block(at(b), 1)); "
         "arrive_far(at_block(at(b), 1)); } meet(); if (rank == 1) await(at(b), 1);", "deadlock"),
        ("if (t == 33) x[1][0] = 1; meet(); if (t == 0) { init(at(b), 1); fence_init(); expect(at(b), 16); } meet();"
         "if (t == 0 && rank == 0) row_to_all(at(x[1]), out, 16, at(b), 3); await(at(b), 0);",
         "overwrite byte 4096 of x.*without fence.proxy.async"),
    ],
)  # fmt: skip
@pytest.mark.one_in(3)
def test_what_is_refused(body: str, message: str) -> None:
    refused(body, message)


def test_clusters_that_are_none() -> None:
    refused("out[t] = 1;", "no multiple", grid=3)
    refused("out[t] = 1;", "those of multiples of 128, 1024 in all", threads=64)
    for dims in ("3, 1, 1", "2, 2, 1", "1, 1, 2", "16"):
        with pytest.raises(EmulatorError, match="refuses the kernel"):
            run(kernel("int *out", "out[t] = 1;", dims), "k", 2, 128, [np.zeros(1024, np.int32)])


def test_kernels_with_and_without_clusters_follow_each_other() -> None:
    """Threads of blocks go from one thread of the host to another."""
    plain = kernel("int *out", "x[0][t] = out[blockIdx.x * 128 + t]; __syncthreads(); "
                   "out[blockIdx.x * 128 + t] = x[0][(t + 1) % 128];", "1").replace(" k(", " plain(")  # fmt: skip
    both = plain + kernel("int *out", "out[blockIdx.x * 128 + t] += 1 + rank; meet();").removeprefix(HEAD)
    out = np.arange(512, dtype=np.int32)
    launches = [Launch(name, (4, 1, 1), (128, 1, 1), (0,), 0) for name in ("plain", "k", "plain", "k")]
    run_launches(both, launches, [Memory("out", out, True)], True, 60.0)
    want = np.arange(512).reshape(4, 128)
    for _ in range(2):
        want = np.roll(want, -1, axis=1) + np.array([[1], [2], [1], [2]])
    np.testing.assert_array_equal(out.reshape(4, 128), want)
