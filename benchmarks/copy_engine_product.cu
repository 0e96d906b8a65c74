// The product of halves A [M, K] and B [K, N], on Hopper: `STAGES` tiles of both lie in a ring of shared memory.  One
// thread of the first group of warps asks the copy engine for them, two groups multiply 64 x 256 each.  A stage has two
// barriers: `full` counts the bytes that have arrived, `empty` the warps that are through with it.
typedef unsigned int u32;
typedef unsigned long long u64;
struct alignas(64) TensorMap { u64 opaque[16]; };
#define DEVICE static __device__ __forceinline__
enum { ROWS = 128, COLUMNS = 256, TERMS = 64, HALF = ROWS / 2, ROW = 128, GROUP = 16 };
enum { A_BYTES = ROWS * ROW, B_BYTES = COLUMNS * ROW, STAGE = A_BYTES + B_BYTES, BOX = HALF * ROW };

DEVICE u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }
DEVICE void arrive(u32 barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
DEVICE void await(u32 barrier, u32 parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }"
               ::"r"(barrier), "r"(parity) : "memory");
}
DEVICE void fetch(u32 to, const TensorMap *map, int column, int row, u32 barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
               ::"r"(to), "l"(map), "r"(column), "r"(row), "r"(barrier) : "memory");
}
// Where a tile lies, in rows of 128 bytes, swizzled; `next` bytes from 64 columns to the next where it is turned.
DEVICE u64 tile(u32 address, u32 next) {
  return (u64)((address & 0x3ffff) >> 4) | (u64)(next >> 4) << 16 | 64ull << 32 | 1ull << 62;
}
DEVICE u32 halves(float low, float high) {
  u32 both;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}
DEVICE void together(int group) { asm volatile("bar.sync %0, 128;" ::"r"(group) : "memory"); }
MULTIPLY

// Where a part of the result begins.  Blocks that run at the same time share rows of A and columns of B in L2.
struct Part {
  int row, column;
  __device__ __forceinline__ Part(int place, int down, int across) {
    const int above = place / (GROUP * across) * GROUP, rest = place % (GROUP * across);
    const int high = down - above < GROUP ? down - above : GROUP;
    row = (above + rest % high) * ROWS;
    column = rest / high * COLUMNS;
  }
};

extern "C" __global__ __launch_bounds__(384, 1) void product(
    const __grid_constant__ TensorMap A, const __grid_constant__ TensorMap B, const __grid_constant__ TensorMap C,
    unsigned short *c, int m, int n, int k) {
  extern __shared__ __align__(1024) unsigned char room[];
  const u32 full = at(room), empty = full + 64, tiles = full + 1024, boxes = tiles + STAGES * STAGE;
  const int group = threadIdx.x / 128, thread = threadIdx.x % 128, lane = thread % 32, warp_row = thread / 32 * 16;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * s));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 8;" ::"r"(empty + 8 * s));
    }
    asm volatile("fence.mbarrier_init.release.cluster;");
  }
  __syncthreads();
  const int down = m / ROWS, across = n / COLUMNS, steps = k / TERMS;
  u32 turn = 0;
  if (group == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    for (int place = blockIdx.x; thread == 0 && place < down * across; place += gridDim.x) {
      const Part part(place, down, across);
      for (int step = 0; step < steps; ++step, ++turn) {
        const u32 s = turn % STAGES, barrier = full + 8 * s, to = tiles + s * STAGE;
        await(empty + 8 * s, (turn / STAGES & 1) ^ 1);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"((int)STAGE) : "memory");
        fetch(to, &A, step * TERMS, part.row, barrier);
        for (int j = 0; j < COLUMNS / 64; ++j)
          fetch(to + A_BYTES + j * 8192, &B, part.column + j * 64, step * TERMS, barrier);
      }
    }
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  float sums[COLUMNS / 2];
  for (int place = blockIdx.x; place < down * across; place += gridDim.x) {
    const Part part(place, down, across);
    const int column = part.column, own = part.row + (group - 1) * HALF;
    for (int step = 0; step < steps; ++step, ++turn) {
      const u32 s = turn % STAGES, a = tiles + s * STAGE + (group - 1) * HALF * ROW, b = tiles + s * STAGE + A_BYTES;
      await(full + 8 * s, turn / STAGES & 1);
      asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
      for (int q = 0; q < 4; ++q) multiply(sums, tile(a, 16) + 2 * q, tile(b + q * 2048, 8192), step + q != 0);
      asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
      asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(GOING_ON) : "memory");
      if (lane == 0 && step >= GOING_ON) arrive(empty + 8 * ((turn - GOING_ON) % STAGES));
    }
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    if (lane == 0 && GOING_ON) arrive(empty + 8 * ((turn - 1) % STAGES));
#if BOXES == 0
#pragma unroll
    for (int v = 0; v < COLUMNS / 2; v += 2) {
      const int x = column + v / 4 * 8 + 2 * (lane % 4), y = own + warp_row + lane / 4 + v / 2 % 2 * 8;
      *(u32 *)(c + (long long)y * n + x) = halves(sums[v], sums[v + 1]);
    }
#else
    // in boxes of 64 x 64, one of two places after the other, while the next tiles arrive
#pragma unroll
    for (int j = 0; j < COLUMNS / 64; ++j) {
      const u32 box = boxes + ((group - 1) * 2 + j % 2) * BOX;
      if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
      together(group);
      const int y = warp_row + lane % 16;
#pragma unroll
      for (int v = 32 * j; v < 32 * j + 32; v += 8) {
        const u32 unit = v % 32 / 4 + lane / 16;
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};"
                     ::"r"(box + y * ROW + ((unit ^ y % 8) << 4)), "r"(halves(sums[v], sums[v + 1])),
                     "r"(halves(sums[v + 2], sums[v + 3])), "r"(halves(sums[v + 4], sums[v + 5])),
                     "r"(halves(sums[v + 6], sums[v + 7])) : "memory");
      }
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      together(group);
      if (thread == 0) {
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                     ::"l"(&C), "r"(column + j * 64), "r"(own), "r"(box) : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      }
    }
#endif
  }
  if (thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
