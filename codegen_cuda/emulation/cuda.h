// The words of CUDA C++ that emitted kernels use, in terms of a host that runs the threads of a block as fibers.
//
// A kernel is compiled unchanged: this header is included before its first line.  Shared arrays become thread-local
// ones, each 64 KiB apart so that an index beyond one array never lands in another; memory accesses are seen through
// the calls that `-fsanitize=thread` inserts, which the host answers.
#pragma once
#include <stddef.h>
#include <stdint.h>

#include "bits.h"
#include "mma.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __grid_constant__
// Blocks of a cluster, 1, 2, 4 or 8 of them along x or y: told by the section that a kernel lies in.
#define __cluster_dims__(...) EMU_CLUSTER(__VA_ARGS__, 1, 1)
#define EMU_CLUSTER(x, y, z, ...) \
  __attribute__((section("emu_cluster_" #x "_" #y), aligned(EMU_IS_CLUSTER(x, y, z) ? 16 : 3)))
#define EMU_IS_CLUSTER(x, y, z) (((x) == 1 || (y) == 1) && (z) == 1 && 0x116 >> (x) * (y) & 1)
#define __restrict__
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ __attribute__((aligned(32768))) thread_local
#define INFINITY (__builtin_inff())
#define NAN (__builtin_nanf(""))

// ---------------------------------------------------------------- the host's side

enum EmuWarpOp { EMU_SYNC, EMU_INDEX, EMU_UP, EMU_DOWN, EMU_XOR, EMU_BALLOT };

extern "C" {
__attribute__((const)) unsigned emu_thread(int axis);
__attribute__((const)) unsigned emu_block(int axis);
__attribute__((const)) unsigned emu_block_dim(int axis);
__attribute__((const)) unsigned emu_grid_dim(int axis);
void emu_barrier(int line);
uint64_t emu_warp(int op, int line, unsigned mask, uint64_t value, int operand, int width);
void emu_atomic(void *address, size_t bytes);
void emu_together(int op, int line, void *lane);
void emu_copy_async(void *to, const void *from, size_t bytes, size_t read, int checked);
void emu_copy_commit();
void emu_copy_wait(unsigned groups, int checked);
void emu_product_begin(
    int line, void (*run)(void *), const void *data, size_t bytes, uint32_t *const *sums, size_t count);
void emu_product_fence();
void emu_product_commit();
void emu_product_wait(unsigned groups, int line);
uintptr_t emu_shared_start();
}

// ---------------------------------------------------------------- indices and barriers

template <unsigned (*Read)(int)> struct EmuIndex {
  struct X { operator unsigned() const { return Read(0); } } x;
  struct Y { operator unsigned() const { return Read(1); } } y;
  struct Z { operator unsigned() const { return Read(2); } } z;
};
static const EmuIndex<emu_thread> threadIdx{};
static const EmuIndex<emu_block> blockIdx{};
static const EmuIndex<emu_block_dim> blockDim{};
static const EmuIndex<emu_grid_dim> gridDim{};
static const int warpSize = 32;
inline unsigned emu_lane_number() {
  return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}

#define __syncthreads() emu_barrier(__LINE__)
#define __syncwarp(...) emu_sync_warp(__LINE__, ##__VA_ARGS__)
#define __shfl_sync(mask, ...) emu_shuffle(EMU_INDEX, __LINE__, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) emu_shuffle(EMU_UP, __LINE__, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) emu_shuffle(EMU_DOWN, __LINE__, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) emu_shuffle(EMU_XOR, __LINE__, mask, __VA_ARGS__)
#define __ballot_sync(mask, p) ((unsigned)emu_warp(EMU_BALLOT, __LINE__, mask, (p) ? 1 : 0, 0, 32))
#define __any_sync(mask, p) ((int)(__ballot_sync(mask, p) != 0))
#define __all_sync(mask, p) ((int)(__ballot_sync(mask, !(p)) == 0))

inline void emu_sync_warp(int line, unsigned mask = 0xffffffffu) { emu_warp(EMU_SYNC, line, mask, 0, 0, 32); }

template <class T> inline T emu_shuffle(int op, int line, unsigned mask, T value, int operand, int width = 32) {
  static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof(T));
  bits = emu_warp(op, line, mask, bits, operand, width);
  __builtin_memcpy(&value, &bits, sizeof(T));
  return value;
}

// ---------------------------------------------------------------- asynchronous copies

// They replace the helpers of emitted programs.  The bytes arrive when the thread waits for their group, no earlier.
#define EMU_ASYNC
#ifdef __SANITIZE_THREAD__
#define EMU_CHECKED 1
#else
#define EMU_CHECKED 0
#endif
extern "C" __attribute__((weak, used)) const int emu_checked = EMU_CHECKED;
template <int bytes> __forceinline__ void copy_async(void *to, const void *from, bool real = true) {
  emu_copy_async(to, from, bytes, real ? bytes : 0, EMU_CHECKED);
}
template <int groups> __forceinline__ void copy_async_wait_all_but() {
  emu_copy_commit(), emu_copy_wait(groups, EMU_CHECKED);
}
__forceinline__ void copy_async_wait() { copy_async_wait_all_but<0>(); }

// ---------------------------------------------------------------- inline PTX (emulator_ptx.py)

inline size_t __cvta_generic_to_shared(const void *p) { return (uintptr_t)p - emu_shared_start(); }
inline void *emu_shared(unsigned place) { return (void *)(emu_shared_start() + place); }
inline void *emu_shared(size_t place) { return emu_shared((unsigned)place); }

template <class T> inline uint32_t emu_word(T x) { return emu_bits<uint32_t>(x); }
template <class T> inline void emu_put(T &x, uint32_t bits) { x = emu_bits<T>(bits); }
inline uint32_t emu_tf32(float x) {  // to the nearest, ties away from zero
  const uint32_t bits = emu_bits<uint32_t>(x), special = (bits & 0x7f800000) == 0x7f800000;
  return (special ? bits : bits + 0x1000) & 0xffffe000;
}
inline float emu_min_xorsign(float a, float b) {
  const float size = __builtin_fminf(__builtin_fabsf(a), __builtin_fabsf(b));
  return __builtin_signbit(a) != __builtin_signbit(b) ? -size : size;
}
template <class P> __forceinline__ void emu_copy(P to, const void *from, size_t bytes, size_t read) {
  emu_copy_async(emu_shared(to), from, bytes, read, EMU_CHECKED);
}
// A product that tensor cores read from shared memory when it is waited for.
template <class F, class... D> inline void emu_begin(int line, F product, D &...sums) {
  static_assert(sizeof product <= 128, "an operand too many");
  uint32_t *const places[] = {(uint32_t *)&sums...};
  emu_product_begin(line, [](void *data) { (*(F *)data)(); }, &product, sizeof product, places, sizeof...(D));
}
// The row of `ldmatrix` at the address that this lane gives; of the others nothing is read.
template <class P> __forceinline__ EmuRow emu_row(P place, int count) {
  if ((int)(emu_lane_number()) >= 8 * count) return EmuRow();
  return *(const EmuRow *)emu_shared(place);
}
template <class P> __forceinline__ void emu_put_row(P place, int count, const EmuRow &row) {
  if ((int)(emu_lane_number()) < 8 * count) *(EmuRow *)emu_shared(place) = row;
}
inline int emu_warp_of_group() {
  return (int)((threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) / 32 % 4);
}
// What this lane has in a register of fragment B: four bytes of a column of a tile in shared memory, whose columns are
// rows of 128 bytes as a descriptor says: swizzled, by the address, 8 of them `stride` bytes after the last 8.
inline uint32_t emu_tile_word(uint64_t descriptor, int tile, int word) {
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0) __builtin_trap();  // another swizzle, or a base offset
  const unsigned lane = emu_lane_number(), stride = (unsigned)(descriptor >> 32 & 0x3fff) << 4;
  unsigned place = ((unsigned)descriptor & 0x3fff) << 4;
  place += tile * stride + lane / 4 * 128 + lane % 4 * 4 + word * 16;
  return *(const uint32_t *)emu_shared(place ^ (place >> 3 & 0x70));
}

// The same from a tile whose rows of 128 bytes are terms: two halves, of one of the rows `eight` * 8 ... of A, or of
// the columns of B, of which 64 lie in such rows, the next 64 as much further as the descriptor says.
inline uint32_t emu_turned_word(uint64_t descriptor, int eight, int word) {
  if (descriptor >> 62 != 1 || (descriptor >> 49 & 7) != 0) __builtin_trap();
  const unsigned lane = emu_lane_number(), stride = (unsigned)(descriptor >> 32 & 0x3fff) << 4;
  const unsigned next = (unsigned)(descriptor >> 16 & 0x3fff) << 4;
  uint32_t both = 0;
  for (unsigned half = 0; half < 2; ++half) {
    unsigned place = ((unsigned)descriptor & 0x3fff) << 4;
    place += eight / 8 * next + word * stride + (lane % 4 * 2 + half) * 128 + (eight % 8 * 8 + lane / 4) * 2;
    both |= (uint32_t)*(const uint16_t *)emu_shared(place ^ (place >> 3 & 0x70)) << 16 * half;
  }
  return both;
}

#include "hopper_ptx.h"

// ---------------------------------------------------------------- vector types

#define EMU_VECTORS(T, name, bytes)                                                            \
  struct __attribute__((aligned(2 * bytes))) name##2 { T x, y; };                              \
  struct name##3 { T x, y, z; };                                                               \
  struct __attribute__((aligned(4 * bytes > 16 ? 16 : 4 * bytes))) name##4 { T x, y, z, w; };  \
  inline name##2 make_##name##2(T x, T y) { return {x, y}; }                                   \
  inline name##3 make_##name##3(T x, T y, T z) { return {x, y, z}; }                           \
  inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

EMU_VECTORS(signed char, char, 1)
EMU_VECTORS(unsigned char, uchar, 1)
EMU_VECTORS(short, short, 2)
EMU_VECTORS(unsigned short, ushort, 2)
EMU_VECTORS(int, int, 4)
EMU_VECTORS(unsigned, uint, 4)
EMU_VECTORS(float, float, 4)
EMU_VECTORS(long long, longlong, 8)
EMU_VECTORS(unsigned long long, ulonglong, 8)
EMU_VECTORS(double, double, 8)
typedef unsigned int uint;

template <class T> inline T __ldg(const T *p) { return *p; }

// ---------------------------------------------------------------- arithmetic

#define EMU_MIN_MAX(T)                                   \
  inline T min(T a, T b) { return b < a ? b : a; }       \
  inline T max(T a, T b) { return a < b ? b : a; }
EMU_MIN_MAX(int)
EMU_MIN_MAX(unsigned)
EMU_MIN_MAX(long)
EMU_MIN_MAX(unsigned long)
EMU_MIN_MAX(long long)
EMU_MIN_MAX(unsigned long long)
inline unsigned min(int a, unsigned b) { return min((unsigned)a, b); }
inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
inline unsigned max(int a, unsigned b) { return max((unsigned)a, b); }
inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }

#define EMU_MATH1(fn)           \
  extern "C" double fn(double); \
  extern "C" float fn##f(float); \
  inline float fn(float x) { return fn##f(x); }
#define EMU_MATH2(fn)                   \
  extern "C" double fn(double, double); \
  extern "C" float fn##f(float, float); \
  inline float fn(float x, float y) { return fn##f(x, y); }
EMU_MATH1(exp) EMU_MATH1(exp2) EMU_MATH1(log) EMU_MATH1(log2) EMU_MATH1(log10) EMU_MATH1(log1p) EMU_MATH1(expm1)
EMU_MATH1(sqrt) EMU_MATH1(sin) EMU_MATH1(cos) EMU_MATH1(tan) EMU_MATH1(tanh) EMU_MATH1(sinh) EMU_MATH1(cosh)
EMU_MATH1(asinh) EMU_MATH1(acosh) EMU_MATH1(atanh)
EMU_MATH1(asin) EMU_MATH1(acos) EMU_MATH1(atan) EMU_MATH1(erf) EMU_MATH1(floor) EMU_MATH1(ceil) EMU_MATH1(trunc)
EMU_MATH1(round) EMU_MATH1(rint) EMU_MATH1(nearbyint) EMU_MATH1(fabs)
EMU_MATH2(pow) EMU_MATH2(fmod) EMU_MATH2(fmax) EMU_MATH2(fmin) EMU_MATH2(atan2) EMU_MATH2(copysign)
extern "C" float fmaf(float, float, float);
extern "C" double fma(double, double, double);
extern "C" int abs(int);
extern "C" long long llabs(long long);
inline float fma(float a, float b, float c) { return fmaf(a, b, c); }
inline float abs(float x) { return fabsf(x); }
inline double abs(double x) { return fabs(x); }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }
inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
inline float rsqrt(float x) { return rsqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline int __mul24(int a, int b) { return a * b; }
inline float __int_as_float(int x) { return emu_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return emu_bits<float>(x); }
inline double __longlong_as_double(long long x) { return emu_bits<double>(x); }
inline long long __double_as_longlong(double x) { return emu_bits<long long>(x); }
inline int __float_as_int(float x) { return emu_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return emu_bits<unsigned>(x); }
inline int __dp4a(int a, int b, int sum) {
  for (int i = 0; i < 32; i += 8) sum += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
  return sum;
}

#define EMU_ATOMIC(name, T, result)                                                              \
  __attribute__((no_sanitize("thread"), noinline)) inline T emu_##name(T *address, T value) {    \
    T old = *address;                                                                            \
    *address = result;                                                                           \
    return old;                                                                                  \
  }                                                                                              \
  __forceinline__ T name(T *address, T value) {                                                  \
    emu_atomic(address, sizeof(T));                                                              \
    return emu_##name(address, value);                                                           \
  }
EMU_ATOMIC(atomicAdd, int, old + value) EMU_ATOMIC(atomicAdd, unsigned, old + value)
EMU_ATOMIC(atomicAdd, float, old + value) EMU_ATOMIC(atomicAdd, double, old + value)
EMU_ATOMIC(atomicMax, int, max(old, value)) EMU_ATOMIC(atomicMin, int, min(old, value))

#include "half.h"

// ---------------------------------------------------------------- how the host enters a kernel

template <int... I> struct EmuList {};
template <int N, int... I> struct EmuRange : EmuRange<N - 1, N - 1, I...> {};
template <int... I> struct EmuRange<0, I...> { typedef EmuList<I...> List; };
template <class T> struct EmuParameter { static const int code = -(int)sizeof(T); };
template <class T> struct EmuParameter<T *> { static const int code = sizeof(T); };

#define EMU_UNSEEN __attribute__((no_sanitize("thread", "undefined")))
template <class... A, int... I> EMU_UNSEEN void emu_enter(void (*kernel)(A...), void **values, EmuList<I...>) {
  kernel(*(A *)values[I]...);
}
template <class... A> EMU_UNSEEN void emu_enter(void (*kernel)(A...), void **values) {
  emu_enter(kernel, values, typename EmuRange<sizeof...(A)>::List());
}
// How many parameters, then each one's element size (pointers) or negated size (values).
template <class... A> inline const int *emu_parameters(void (*)(A...)) {
  static const int codes[] = {(int)sizeof...(A), EmuParameter<A>::code...};
  return codes;
}
#define EMU_OF_CLUSTER(name, count)                                                                           \
  extern "C" __attribute__((weak, visibility("hidden"))) const char __start_##name[], __stop_##name[];        \
  inline int emu_of_##name(uintptr_t at) {                                                                    \
    return at - (uintptr_t)__start_##name < (uintptr_t)__stop_##name - (uintptr_t)__start_##name ? count : 0; \
  }
EMU_OF_CLUSTER(emu_cluster_2_1, 2) EMU_OF_CLUSTER(emu_cluster_4_1, 4) EMU_OF_CLUSTER(emu_cluster_8_1, 8)
EMU_OF_CLUSTER(emu_cluster_1_2, -2) EMU_OF_CLUSTER(emu_cluster_1_4, -4) EMU_OF_CLUSTER(emu_cluster_1_8, -8)
// How many blocks, along x; negated, along y.
template <class F> inline int emu_blocks_of_cluster(F *kernel) {
  const uintptr_t at = (uintptr_t)kernel;
  const int found = emu_of_emu_cluster_2_1(at) + emu_of_emu_cluster_4_1(at) + emu_of_emu_cluster_8_1(at) +
                    emu_of_emu_cluster_1_2(at) + emu_of_emu_cluster_1_4(at) + emu_of_emu_cluster_1_8(at);
  return found ? found : 1;
}
#define EMU_KERNEL(name)                                                               \
  extern "C" EMU_UNSEEN void emu_enter_##name(void **v) { emu_enter(name, v); }        \
  extern "C" int emu_cluster_##name() { return emu_blocks_of_cluster(name); }          \
  extern "C" const int *emu_parameters_##name() { return emu_parameters(name); }
