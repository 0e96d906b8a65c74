"""The functions of a ring (`ring.py`) as CUDA C++ around inline PTX: barriers, boxes, roles.

Barriers, their phases and the order that they give: PTX ISA, "mbarrier"; copies of boxes: "cp.async.bulk.tensor".
What arrives is written, and what is stored is read, by another proxy than that of threads.
"""

from __future__ import annotations

from .copy_boxes import MOST_AXES

_HEAD = "static __device__ __forceinline__ void"
_AT = """\
static __device__ __forceinline__ unsigned shared_address(const void *p) {
  return (unsigned)__cvta_generic_to_shared(p);
}"""
_CLUSTER_MEETS = """\
asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");"""


def _open(name: str, meet: str) -> str:
    return f"""\
// A tile of a ring has two barriers: `full` counts bytes that arrive, `empty` the warps that are through with it.
{_HEAD} {name}(void *barriers, int tiles, int warps) {{
  if (threadIdx.x + threadIdx.y == 0) {{
    const unsigned full = shared_address(barriers), empty = full + 8 * tiles;
    for (int tile = 0; tile < tiles; ++tile) {{
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(full + 8 * tile));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(empty + 8 * tile), "r"(warps));
    }}
    asm volatile("fence.mbarrier_init.release.cluster;");
  }}
  {meet}
}}"""


_MAP_AHEAD = f"""\
// What the engine is told of an array, brought while barriers are made.
{_HEAD} map_ahead(const TensorMap &map) {{
#ifdef __CUDA_ARCH__
  if (threadIdx.x + threadIdx.y == 0) asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
#endif
}}"""
_MEMORY_THERE = f"""\
// What the kernel before has stored is there behind this (`dependent_launch.py`).
{_HEAD} memory_there() {{}}"""
_TURN_OPEN = f"""\
// Before ring_open: a barrier at which a group says that the other one may begin.
{_HEAD} turn_open(void *barrier) {{
  if (threadIdx.x + threadIdx.y == 0)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)));
}}"""
_BOXES_OPEN = f"""\
// Before ring_open: barriers of boxes that one thread each has fetched.
{_HEAD} boxes_open(void *barriers, int count) {{
  if (threadIdx.x + threadIdx.y == 0)
    for (int box = 0; box < count; ++box)
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barriers) + 8 * box));
}}"""
_AWAIT = f"""\
{_HEAD} ring_await(const void *barrier, int parity) {{
  asm volatile("{{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }}"
               ::"r"(shared_address(barrier)), "r"(parity) : "memory");
}}"""
_EXPECT = f"""\
{_HEAD} ring_expect(const void *barrier, int bytes) {{
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               ::"r"(shared_address(barrier)), "r"(bytes) : "memory");
}}"""
_RELEASE = f"""\
{_HEAD} ring_release(const void *barrier) {{
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}}"""
_CLUSTER_RELEASE = f"""\
// To all blocks of a cluster, which fill the tiles of all.  No memory of threads is released: that would wait for all
// that the thread has asked for (MEMBAR.GPU), most of a microsecond.
template <int blocks> {_HEAD} cluster_release(const void *barrier) {{
  for (unsigned block = 0; block < blocks; ++block) {{
    unsigned there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(barrier)), "r"(block));
    asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
  }}
}}"""
_CLUSTER_CLOSE = f"""\
// A block goes on until the others of its cluster will do nothing more to its shared memory.
{_HEAD} cluster_close() {{
  {_CLUSTER_MEETS}
}}"""
_CLUSTER_ADD = f"""\
// All blocks of a cluster show each other their sums, where their rings were: of each thread of the groups so many
// tiles, of which each block adds up a share.  Threads that fetch come to the end meanwhile, which is as good.
template <int blocks, int tiles, int share, int threads>
{_HEAD} cluster_add(float *total, const float *sums, void *room) {{
  const unsigned own = shared_address((const float4 *)room + threadIdx.y * 32 + threadIdx.x);
  unsigned rank, there[blocks];
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const int first = rank * share;
  asm volatile("bar.sync 15, %0;" ::"r"(threads) : "memory");
#pragma unroll
  for (int tile = 0; tile < tiles; ++tile)
    ((float4 *)room)[tile * threads + threadIdx.y * 32 + threadIdx.x] =
        make_float4(sums[4 * tile], sums[4 * tile + 1], sums[4 * tile + 2], sums[4 * tile + 3]);
  {_CLUSTER_MEETS}
#pragma unroll
  for (int block = 0; block < blocks; ++block)
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(there[block]) : "r"(own + first * threads * 16), "r"(block));
#pragma unroll
  for (int tile = 0; tile < share; ++tile) {{
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (int block = 0; block < blocks; ++block) {{
      float4 part;
      asm volatile("ld.shared::cluster.v4.f32 {{%0, %1, %2, %3}}, [%4];"
                   : "=f"(part.x), "=f"(part.y), "=f"(part.z), "=f"(part.w)
                   : "r"(there[block] + tile * threads * 16) : "memory");
      sum = make_float4(sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w);
    }}
    total[4 * tile] = sum.x, total[4 * tile + 1] = sum.y, total[4 * tile + 2] = sum.z, total[4 * tile + 3] = sum.w;
  }}
}}"""
_CLEAR = f"""\
// The threads of all groups put zeros to `bytes` of each of so many tiles.
{_HEAD} ring_clear(void *from, int tiles, int stride, int bytes, int groups) {{
  for (int tile = 0; tile < tiles; ++tile)
    for (int at = (threadIdx.y * 32 + threadIdx.x) * 16; at < bytes; at += groups * 128 * 16)
      *(int4 *)((char *)from + tile * stride + at) = make_int4(0, 0, 0, 0);
}}"""
_GROUPS_MEET = f"""\
{_HEAD} groups_meet(int groups) {{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync 15, %0;" ::"r"(groups * 128) : "memory");
}}"""
_SHARE = """\
template <int registers> static __device__ __forceinline__ void {name}() {{
  asm volatile("setmaxnreg.{kind}.sync.aligned.u32 %0;" ::"n"(registers));
}}"""
_MEET = f"""\
// All threads of a group meet; what they stored to shared memory is there for the copy engine.
{_HEAD} group_meets(int group) {{
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}}"""
_FOLLOW = f"""\
// All threads of a group wait for the one of them that has waited.
{_HEAD} group_follows(int group) {{
  asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
}}"""
_READ = """\
template <int left> static __device__ __forceinline__ void boxes_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(left) : "memory");
}"""


def _box(axes: int, does: str) -> str:
    """The function that fetches a box of an array with so many axes, for a block or all of a cluster, or stores one;
    coordinates innermost first."""
    given = ", ".join([f"int x{d}" for d in range(axes)])
    inputs = ", ".join([f'"r"(x{d})' for d in range(axes)])
    if does == "store":
        at = ", ".join([f"%{d + 1}" for d in range(axes)])
        return f"""\
{_HEAD} box_store_{axes}d(const TensorMap &map, const void *from, {given}) {{
  asm volatile("cp.async.bulk.tensor.{axes}d.global.shared::cta.tile.bulk_group [%0, {{{at}}}], [%{axes + 1}];"
               ::"l"(&map), {inputs}, "r"(shared_address(from)) : "memory");
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}}"""
    at = ", ".join([f"%{d + 2}" for d in range(axes)])
    name = f"cp.async.bulk.tensor.{axes}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
    head, mask, all_of = _HEAD, "", ""
    if does == "share":
        head, name = f"template <int blocks> {_HEAD}", f"{name}.multicast::cluster"
        mask, all_of = f", %{axes + 3}", ', "h"((unsigned short)((1 << blocks) - 1))'
    return f"""\
{head} box_{does}_{axes}d(const TensorMap &map, void *to, const void *barrier, {given}) {{
  asm volatile("{name} [%0], [%1, {{{at}}}], [%{axes + 2}]{mask};"
               ::"r"(shared_address(to)), "l"(&map), {inputs}, "r"(shared_address(barrier)){all_of} : "memory");
}}"""


_PIXELS = f"""\
// Pixels of windows: the first one of them all, and the place in each.
{_HEAD} pixels_fetch_4d(const TensorMap &map, void *to, const void *barrier,
                                           int c, int w, int h, int n, int x, int y) {{
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
               " [%0], [%1, {{%2, %3, %4, %5}}], [%6], {{%7, %8}};"
               ::"r"(shared_address(to)), "l"(&map), "r"(c), "r"(w), "r"(h), "r"(n), "r"(shared_address(barrier)),
               "h"((short)x), "h"((short)y) : "memory");
}}"""

FUNCTIONS = {
    "ring_open": _open("ring_open", "__syncthreads();"),
    "map_ahead": _MAP_AHEAD, "memory_there": _MEMORY_THERE, "turn_open": _TURN_OPEN, "boxes_open": _BOXES_OPEN,
    "ring_await": _AWAIT, "ring_expect": _EXPECT, "ring_release": _RELEASE,
    "registers_less": _SHARE.format(name="registers_less", kind="dec"),
    "registers_more": _SHARE.format(name="registers_more", kind="inc"),
    "group_meets": _MEET, "group_follows": _FOLLOW, "boxes_read": _READ, "pixels_fetch_4d": _PIXELS,
    "ring_clear": _CLEAR, "groups_meet": _GROUPS_MEET,
    "cluster_open": _open("cluster_open", _CLUSTER_MEETS), "cluster_release": _CLUSTER_RELEASE,
    "cluster_close": _CLUSTER_CLOSE, "cluster_add": _CLUSTER_ADD,
    **{f"box_{does}_{axes}d": _box(axes, does)
       for axes in range(1, MOST_AXES + 1) for does in ("fetch", "share", "store")},
}  # fmt: skip
"""Their definitions by name."""


def helpers(name: str) -> dict[str, str]:
    """The definition of a function, and those that it needs, by name, in their order."""
    return {"shared_address": _AT, name: FUNCTIONS[name]}
