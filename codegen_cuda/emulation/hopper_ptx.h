// PTX of Hopper as functions, named as the instructions are (ansor_ext/tensor_core/emulated_ptx.py): barriers in shared
// memory, named barriers, clusters of blocks, the copy engine.  What they do is in barriers.h and copy_engine.h, on the
// host's side.
#pragma once

extern "C" {
void emu_mbarrier_init(int line, void *at, unsigned count);
void emu_mbarrier_invalidate(int line, void *at);
void emu_mbarrier_arrive(int line, void *at, unsigned arrivals, int bytes);
int emu_mbarrier_wait(int line, void *at, unsigned parity, int polls);
void emu_mbarrier_arrive_in_cluster(int line, unsigned place, unsigned arrivals);
unsigned emu_map_to_block(int line, unsigned place, unsigned rank);
const void *emu_in_cluster(int line, unsigned place, unsigned bytes);
__attribute__((const)) unsigned emu_cluster_rank();
__attribute__((const)) unsigned emu_cluster_blocks();
void emu_cluster_arrive(int line);
void emu_cluster_wait(int line);
void emu_fence_barriers();
void emu_fence_proxy();
void emu_meet_at(int line, unsigned id, unsigned count, int waits);
void emu_registers(int line, int count);
void emu_box_load(int line, const void *map, const int *at, int rank, void *to, void *barrier);
void emu_pixels_load(int line, const void *map, const int *at, int rank, void *to, void *barrier, const int *further);
void emu_box_multicast(int line, const void *map, const int *at, int rank, void *to, void *barrier, unsigned mask);
void emu_box_store(int line, const void *map, const int *at, int rank, void *from);
void emu_row_load(int line, void *to, const void *from, unsigned bytes, void *barrier);
void emu_row_multicast(int line, void *to, const void *from, unsigned bytes, void *barrier, unsigned mask);
void emu_row_store(int line, void *to, const void *from, unsigned bytes);
void emu_stores_commit();
void emu_stores_wait(unsigned left, int read_only);
}

#define EMU_PTX template <class P> __forceinline__ void

EMU_PTX emu_mbarrier_init_shared_b64(int line, P at, unsigned count) { emu_mbarrier_init(line, emu_shared(at), count); }
EMU_PTX emu_mbarrier_inval_shared_b64(int line, P at) { emu_mbarrier_invalidate(line, emu_shared(at)); }
EMU_PTX emu_mbarrier_arrive_shared_b64(int line, P at, unsigned count = 1) {
  emu_mbarrier_arrive(line, emu_shared(at), count, 0);
}
EMU_PTX emu_mbarrier_arrive_expect_tx_shared_b64(int line, P at, int bytes) {
  emu_mbarrier_arrive(line, emu_shared(at), 1, bytes);
}
EMU_PTX emu_mbarrier_expect_tx_shared_b64(int line, P at, int bytes) {
  emu_mbarrier_arrive(line, emu_shared(at), 0, bytes);
}
EMU_PTX emu_mbarrier_complete_tx_shared_b64(int line, P at, int bytes) {
  emu_mbarrier_arrive(line, emu_shared(at), 0, -bytes);
}
template <class T, class P, class... Hint>
__forceinline__ void emu_mbarrier_try_wait_parity_shared_b64(int line, T &done, P at, unsigned parity, Hint...) {
  done = emu_mbarrier_wait(line, emu_shared(at), parity, 0) != 0;
}
template <class T, class P>
__forceinline__ void emu_mbarrier_test_wait_parity_shared_b64(int line, T &done, P at, unsigned parity) {
  done = emu_mbarrier_wait(line, emu_shared(at), parity, 1) != 0;
}
EMU_PTX emu_mbarrier_arrive_shared_cluster_b64(int line, P at, unsigned count = 1) {
  emu_mbarrier_arrive_in_cluster(line, (unsigned)at, count);
}
template <class T, class P> __forceinline__ void emu_mapa_shared_cluster_u32(int line, T &to, P at, unsigned rank) {
  to = emu_map_to_block(line, (unsigned)at, rank);
}
template <class P, class... T> __forceinline__ void emu_ld_shared_cluster(int line, P at, T &...to) {
  struct alignas(sizeof...(T) * 4) Words { uint32_t of[sizeof...(T)]; };
  const Words words = *(const Words *)emu_in_cluster(line, (unsigned)at, sizeof(Words));
  const uint32_t *next = words.of;
  (emu_put(to, *next++), ...);
}
inline void emu_barrier_cluster_arrive(int line) { emu_cluster_arrive(line); }
inline void emu_barrier_cluster_wait(int line) { emu_cluster_wait(line); }
inline void emu_fence_mbarrier_init(int) { emu_fence_barriers(); }
inline void emu_fence_proxy_async(int) { emu_fence_proxy(); }
inline void emu_fence_proxy_async_shared(int) { emu_fence_proxy(); }
inline void emu_fence_proxy_async_global(int) {}

inline void emu_bar_sync(int line, unsigned id, unsigned count = 0) { emu_meet_at(line, id, count, 1); }
inline void emu_bar_arrive(int line, unsigned id, unsigned count) { emu_meet_at(line, id, count, 0); }
inline void emu_barrier_sync(int line, unsigned id, unsigned count = 0) { emu_meet_at(line, id, count, 1); }
inline void emu_barrier_sync_aligned(int line, unsigned id, unsigned count = 0) { emu_meet_at(line, id, count, 1); }

inline void emu_setmaxnreg_inc_sync_aligned_u32(int line, int count) { emu_registers(line, count); }
inline void emu_setmaxnreg_dec_sync_aligned_u32(int line, int count) { emu_registers(line, count); }
template <class T> inline void emu_elect_sync(int line, T &elected, unsigned mask) {
  elected = (unsigned)__builtin_ctz((unsigned)emu_warp(EMU_BALLOT, line, mask, 1, 0, 32)) == emu_lane_number();
}

// Addresses in global memory, of maps, too, are pointers or numbers; a hint for caches changes nothing.
template <class M, class P, int rank, class... Hint>
__forceinline__ void emu_cp_async_bulk_tensor_shared_global_mbarrier_complete_tx_bytes(
    int line, P to, M map, const int (&at)[rank], P barrier, Hint...) {
  emu_box_load(line, (const void *)map, at, rank, emu_shared(to), emu_shared(barrier));
}
template <class M, class P, int rank, int spatial, class... Hint>
__forceinline__ void emu_cp_async_bulk_tensor_shared_global_im2col_mbarrier_complete_tx_bytes(
    int line, P to, M map, const int (&at)[rank], P barrier, const int (&further)[spatial], Hint...) {
  static_assert(spatial == rank - 2, "a place in a window has as many coordinates as an image");
  emu_pixels_load(line, (const void *)map, at, rank, emu_shared(to), emu_shared(barrier), further);
}
template <class M, class P, int rank, class... Hint>
__forceinline__ void emu_cp_async_bulk_tensor_shared_global_mbarrier_complete_tx_bytes_multicast_cluster(
    int line, P to, M map, const int (&at)[rank], P barrier, unsigned mask, Hint...) {
  emu_box_multicast(line, (const void *)map, at, rank, emu_shared(to), emu_shared(barrier), mask & 0xffff);
}
template <class M, class P, int rank, class... Hint>
__forceinline__ void emu_cp_async_bulk_tensor_global_shared_bulk_group(
    int line, M map, const int (&at)[rank], P from, Hint...) {
  emu_box_store(line, (const void *)map, at, rank, emu_shared(from));
}
template <class M, class P, class... Hint>
__forceinline__ void emu_cp_async_bulk_shared_global_mbarrier_complete_tx_bytes(
    int line, P to, M from, unsigned bytes, P barrier, Hint...) {
  emu_row_load(line, emu_shared(to), (const void *)from, bytes, emu_shared(barrier));
}
template <class M, class P, class... Hint>
__forceinline__ void emu_cp_async_bulk_shared_global_mbarrier_complete_tx_bytes_multicast_cluster(
    int line, P to, M from, unsigned bytes, P barrier, unsigned mask, Hint...) {
  emu_row_multicast(line, emu_shared(to), (const void *)from, bytes, emu_shared(barrier), mask & 0xffff);
}
template <class M, class P, class... Hint>
__forceinline__ void emu_cp_async_bulk_global_shared_bulk_group(int line, M to, P from, unsigned bytes, Hint...) {
  emu_row_store(line, (void *)to, emu_shared(from), bytes);
}
inline void emu_cp_async_bulk_commit_group(int) { emu_stores_commit(); }
inline void emu_cp_async_bulk_wait_group(int, unsigned left) { emu_stores_wait(left, 0); }
inline void emu_cp_async_bulk_wait_group_read(int, unsigned left) { emu_stores_wait(left, 1); }
EMU_PTX emu_prefetch_tensormap(int, P) {}

template <class T, class A, class B> inline void emu_setp_ne_b32(int, T &p, A a, B b) { p = a != b; }
template <class T, class A, class B> inline void emu_setp_eq_b32(int, T &p, A a, B b) { p = a == b; }
template <class T, class A, class B> inline void emu_selp_b32(int, T &to, A a, B b, bool p) { to = p ? a : b; }
template <class T> inline void emu_cvt_rna_tf32_f32(int, T &to, float x) { emu_put(to, emu_tf32(x)); }
inline void emu_min_xorsign_abs_f32(int, float &to, float a, float b) { to = emu_min_xorsign(a, b); }
inline void emu_wgmma_fence_sync_aligned(int) { emu_product_fence(); }
inline void emu_wgmma_commit_group_sync_aligned(int) { emu_product_commit(); }
inline void emu_wgmma_wait_group_sync_aligned(int line, unsigned left) { emu_product_wait(left, line); }
inline void emu_cvt_rn_f16x2_f32(int, unsigned &both, float high, float low) {
  both = (unsigned)emu_round_half(high) << 16 | emu_round_half(low);
}
