"""Barriers at which threads meet in parts, on the block emulator: their phases, counts and bytes, and what is wrong."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from codegen_cuda.emulation.emulator import run
from codegen_cuda.emulation.emulator_report import EmulatorError

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not on PATH: kernels cannot be emulated")

HEAD = r"""
typedef unsigned int u32;
typedef unsigned long long u64;
#define DEVICE static __device__ __forceinline__
DEVICE u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void init(u32 b, u32 count) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(count)); }
DEVICE void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;"); }
DEVICE void arrive(u32 b) { asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(b) : "memory"); }
DEVICE void arrive_n(u32 b, u32 n) { asm volatile("mbarrier.arrive.shared.b64 _, [%0], %1;" ::"r"(b), "r"(n)); }
DEVICE void expect(u32 b, u32 n) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n));
}
DEVICE void complete(u32 b, u32 n) { asm volatile("mbarrier.complete_tx.shared::cta.b64 [%0], %1;" ::"r"(b), "r"(n)); }
DEVICE bool test(u32 b, u32 parity) {
  u32 done;
  asm volatile("{\n .reg .pred p;\n mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n selp.b32 %0, 1, 0, p;\n}"
               : "=r"(done) : "r"(b), "r"(parity) : "memory");
  return done;
}
DEVICE void await(u32 b, u32 parity) { while (!test(b, parity)) {} }
DEVICE void bar(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
"""


def kernel(parameters: str, body: str, shared: str = "__shared__ __align__(8) u64 b[4]; __shared__ int x[256];") -> str:
    return f"""{HEAD}extern "C" __global__ void k({parameters}) {{
  {shared}
  const int t = threadIdx.x;
  {body}
}}
"""


def refused(body: str, message: str, threads: int = 64) -> None:
    with pytest.raises(EmulatorError, match=message):
        run(kernel("int *out", body), "k", 1, threads, [np.zeros(256, np.int32)])


MADE = "if (t == 0) { init(at(b), 2); init(at(b + 1), 64); fence_init(); } __syncthreads();"


def test_phases_and_counts() -> None:
    """One thread, so that every answer is certain: a phase needs its arrivals and its bytes, then parity turns."""
    body = """init(at(b), 2);
  const u32 m = at(b);
  int i = 0;
  out[i++] = test(m, 1); out[i++] = test(m, 0);             // phase 0: the one before it is over
  arrive(m); out[i++] = test(m, 1);
  arrive(m); out[i++] = test(m, 0); out[i++] = test(m, 1);  // phase 1
  expect(m, 48); arrive_n(m, 2); out[i++] = test(m, 1);
  complete(m, 32); out[i++] = test(m, 0);
  complete(m, 16); out[i++] = test(m, 1); out[i++] = test(m, 0);  // phase 2
  complete(m, 64); expect(m, 64); arrive_n(m, 2); out[i++] = test(m, 0);  // bytes may come before they are expected"""
    out = np.full(16, -1, np.int32)
    run(kernel("int *out", body), "k", 1, 1, [out])
    np.testing.assert_array_equal(out[:10], [1, 0, 1, 1, 0, 0, 1, 1, 0, 1])


RING = """if (t == 0) for (int s = 0; s < 2; ++s) { init(at(b + s), 32); init(at(b + 2 + s), 1); } __syncthreads();
  if (t < 32) {  // the first warp makes values, 32 at a time, the second one adds them up
    for (int i = 0; i < 7; ++i) {
      await(at(b + 2 + i % 2), (i / 2 & 1) ^ 1);
      x[i % 2 * 32 + t] = i * 100 + t;
      arrive(at(b + i % 2));
    }
  } else {
    int sum = 0;
    for (int i = 0; i < 7; ++i) {
      await(at(b + i % 2), i / 2 & 1);
      sum += x[i % 2 * 32 + t - 32];
      __syncwarp();
      if (t == 32) arrive(at(b + 2 + i % 2));
    }
    out[t - 32] = sum;
  }"""


@pytest.mark.parametrize("check", [True, False])
def test_a_ring_between_warps(check: bool) -> None:
    out = np.zeros(32, np.int32)
    run(kernel("int *out", RING), "k", 1, 64, [out], check=check)
    np.testing.assert_array_equal(out, 2100 + 7 * np.arange(32))


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("__syncwarp();", "", "race: .* writes byte .* of x, which .* read without a barrier"),
        ("await(at(b + 2 + i % 2), (i / 2 & 1) ^ 1);", "", "race|deadlock"),
        ("await(at(b + i % 2), i / 2 & 1);", "", "race|uninitialised"),
        (
            "if (t == 32) arrive",
            "if (t == 32 && i != 3) arrive",
            "deadlock: .* phase 1 .*, which lacks 1 of 1 arrivals",
        ),
    ],
)
@pytest.mark.one_in(2)
def test_faults_of_the_ring(old: str, new: str, message: str) -> None:
    assert old in RING
    refused(RING.replace(old, new), message)


def test_named_barriers() -> None:
    """Two halves of a block sum up by themselves, one of them more often than the other."""
    body = """const int half = t / 64;
  for (int step = 32 << half; step; step >>= 1) {
    if (step == 32 << half) x[t] = t;
    bar(1 + half, 64);
    const int other = t % 64 + step < 64 ? x[t + step] : 0;
    bar(1 + half, 64);
    x[t] += other;
  }
  bar(1 + half, 64);
  out[t] = x[half * 64];"""
    out = np.zeros(128, np.int32)
    run(kernel("int *out", body), "k", 1, 128, [out])
    np.testing.assert_array_equal(out, np.repeat([sum(range(64)), sum(range(64, 128))], 64))
    refused(body.replace("bar(1 + half, 64);\n    const", "const"), "race|uninitialised", 128)
    refused(body.replace("bar(1 + half, 64);\n    x[t]", "x[t]"), "race", 128)
    refused("bar(1, t < 32 ? 32 : 64);", "deadlock: .* waits at barrier 1 for 32 of 64 threads")


def test_half_of_a_barrier() -> None:
    body = """if (t < 32) { x[t] = t * t; asm volatile("bar.arrive 3, 64;" ::: "memory"); }
  else { bar(3, 64); out[t - 32] = x[t - 32]; }"""
    out = np.zeros(32, np.int32)
    run(kernel("int *out", body), "k", 1, 64, [out])
    np.testing.assert_array_equal(out, np.arange(32) ** 2)


def test_one_lane_is_elected() -> None:
    body = """u32 mine = 0;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; @p mov.b32 %0, 1; }" : "+r"(mine));
  out[t] = mine;"""
    out = np.zeros(64, np.int32)
    run(kernel("int *out", body), "k", 1, 64, [out])
    assert list(np.flatnonzero(out)) == [0, 32]


@pytest.mark.parametrize(
    "body, message",
    [
        ("arrive(at(b));", "uses a barrier at byte 0 of b, where none was initialised"),
        ("if (t == 0) init(at(b), 1); if (t == 0) init(at(b), 1);", "initialises the barrier at byte 0 of b again"),
        ("if (t == 0) init(at(b), 0);", "with a count of 0"),
        ("if (t == 0) init(at(b) + 4, 1);", "misaligned"),
        ("if (t == 0) init(at(b) + 32, 1);", "out of bounds"),
        (MADE + "if (t == 0) expect(at(b), 1 << 20);", "expect 1048576 bytes"),
        (MADE + "if (t == 0) await(at(b), 2);", "waits for parity 2"),
        (MADE + "if (t == 0) arrive_n(at(b), 3);", "once too often: its phase 0 has all of its 2 arrivals"),
        (MADE + "if (t < 63) arrive(at(b + 1)); await(at(b + 1), 0);", "lacks 1 of 64 arrivals and 0 bytes"),
        ("if (t == 0) init(at(b), 1); if (t == 33) arrive(at(b));", "which thread .0, 0, 0. initialises"),
        ('asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");', "needs a group of 128 threads"),
        ("bar(16, 64);", "waits at barrier 16"),
        (MADE + "if (t == 5) b[1] = 0;", "writes byte 8 of b, where a barrier is in use"),
        (MADE + "out[t] = (int)b[0];", "reads byte 0 of b, where a barrier is in use"),
    ],
)  # fmt: skip
@pytest.mark.one_in(3)
def test_what_is_refused(body: str, message: str) -> None:
    refused(body, message)


def test_a_barrier_that_is_over_can_be_made_again() -> None:
    body = """if (t == 0) {
    init(at(b), 1);
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(at(b)));
    init(at(b), 64);
  }
  __syncthreads();
  arrive(at(b));
  await(at(b), 0);
  out[blockIdx.x * 64 + t] = 1;"""
    out = np.zeros(192, np.int32)
    run(kernel("int *out", body), "k", 3, 64, [out])
    assert out.all()


STMATRIX = """u32 held[4];
  for (int i = 0; i < 4; ++i) held[i] = (i * 32 + t) * 2 | (i * 32 + t) * 2 + 1 << 16;
  const u32 row = at(x) + t % {rows} * 16;
  asm volatile("stmatrix.sync.aligned.m8n8.x{count}{trans}.shared::cta.b16 [%0], {operands};"
               ::"r"(row), {inputs} : "memory");
  __syncthreads();
  for (int i = t; i < {rows} * 4; i += 32) out[i] = x[i];"""


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.one_in(2)
def test_stmatrix(count: int, trans: bool) -> None:
    """Lane l has of matrix i the columns 2 * (l % 4) and the next one of row l / 4, or of a transposed one the rows."""
    operands = "{" + ", ".join(f"%{i + 1}" for i in range(count)) + "}"
    inputs = ", ".join(f'"r"(held[{i}])' for i in range(count))
    text = STMATRIX.format(rows=8 * count, count=count, trans=".trans" * trans, operands=operands, inputs=inputs)
    out = np.zeros((count, 8, 8), np.uint16)
    run(kernel("int *out", text, "__shared__ __align__(16) int x[256];"), "k", 1, 32, [out.view(np.int32)])
    held = np.arange(count * 64).reshape(count, 8, 8)
    np.testing.assert_array_equal(out, held.transpose(0, 2, 1) if trans else held)


def test_groups_ask_for_registers_together() -> None:
    body = """if (t < 128) { asm volatile("setmaxnreg.dec.sync.aligned.u32 24;"); }
  else { asm volatile("setmaxnreg.inc.sync.aligned.u32 240;"); }
  out[t] = t;"""
    out = np.zeros(256, np.int32)
    run(kernel("int *out", body), "k", 1, 256, [out])
    np.testing.assert_array_equal(out, np.arange(256))
    refused(body.replace("t < 128", "t < 64"), "waits at another line", 256)
    refused(f"if (t < 96) {{ {body} }}", "deadlock: .* waits for the other warps of its group", 128)
