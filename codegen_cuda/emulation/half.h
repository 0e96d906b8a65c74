// IEEE binary16 as CUDA has it: sixteen bits, every operation in float and rounded once to nearest, ties to even.
#pragma once

#include "bits.h"

struct half {
  uint16_t bits;
  constexpr half() : bits(0x7fff) {}  // a NaN; constant, so that shared arrays need no guard
  half(float x) : bits(emu_round_half(x)) {}
  half(double x) : bits(emu_round_half(x)) {}
  half(int x) : bits(emu_round_half(x)) {}
  half(unsigned x) : bits(emu_round_half(x)) {}
  operator float() const { return emu_widen_half(bits); }
};
typedef half __half;
struct __attribute__((aligned(4))) half2 { half x, y; };
typedef half2 __half2;

#define EMU_HALF_BINARY(op)                                                                      \
  inline half operator op(half a, half b) { return half((float)a op(float) b); }                \
  inline half &operator op##=(half &a, half b) { return a = a op b; }                           \
  inline half2 operator op(half2 a, half2 b) { return {a.x op b.x, a.y op b.y}; }               \
  inline half2 &operator op##=(half2 &a, half2 b) { return a = a op b; }
EMU_HALF_BINARY(+)
EMU_HALF_BINARY(-)
EMU_HALF_BINARY(*)
EMU_HALF_BINARY(/)
#define EMU_HALF_COMPARE(op) \
  inline bool operator op(half a, half b) { return (float)a op(float) b; }
EMU_HALF_COMPARE(<)
EMU_HALF_COMPARE(<=)
EMU_HALF_COMPARE(>)
EMU_HALF_COMPARE(>=)
EMU_HALF_COMPARE(==)
EMU_HALF_COMPARE(!=)
inline half operator-(half a) { return half(-(float)a); }

inline half __float2half(float x) { return half(x); }
inline half __float2half_rn(float x) { return half(x); }
inline half __double2half(double x) { return half(x); }
inline half __int2half_rn(int x) { return half(x); }
inline float __half2float(half x) { return (float)x; }
inline int __half2int_rz(half x) { return (int)(float)x; }
inline half __ushort_as_half(unsigned short x) { return emu_bits<half>(x); }
inline unsigned short __half_as_ushort(half x) { return x.bits; }
inline half __hadd(half a, half b) { return a + b; }
inline half __hsub(half a, half b) { return a - b; }
inline half __hmul(half a, half b) { return a * b; }
inline half __hdiv(half a, half b) { return a / b; }
inline half __hneg(half a) { return -a; }
inline half __habs(half a) { return half(fabsf(a)); }
inline half __hfma(half a, half b, half c) { return half((double)(float)a * (float)b + (double)(float)c); }
inline half __hmax(half a, half b) { return half(fmaxf(a, b)); }
inline half __hmin(half a, half b) { return half(fminf(a, b)); }
inline bool __hisnan(half a) { return a != a; }
inline half hexp(half x) { return half(expf(x)); }
inline half hlog(half x) { return half(logf(x)); }
inline half hsqrt(half x) { return half(sqrt((double)(float)x)); }
inline half hrsqrt(half x) { return half(rsqrt((double)(float)x)); }
inline half hfloor(half x) { return half(floorf(x)); }
inline half hceil(half x) { return half(ceilf(x)); }

inline half2 make_half2(half x, half y) { return {x, y}; }
inline half2 __halves2half2(half x, half y) { return {x, y}; }
inline half2 __half2half2(half x) { return {x, x}; }
inline half2 __float2half2_rn(float x) { return {half(x), half(x)}; }
inline half2 __floats2half2_rn(float x, float y) { return {half(x), half(y)}; }
inline half2 __float22half2_rn(float2 v) { return {half(v.x), half(v.y)}; }
inline float2 __half22float2(half2 v) { return {(float)v.x, (float)v.y}; }
inline half __low2half(half2 v) { return v.x; }
inline half __high2half(half2 v) { return v.y; }
inline float __low2float(half2 v) { return v.x; }
inline float __high2float(half2 v) { return v.y; }
inline half2 __hadd2(half2 a, half2 b) { return a + b; }
inline half2 __hsub2(half2 a, half2 b) { return a - b; }
inline half2 __hmul2(half2 a, half2 b) { return a * b; }
inline half2 __hmax2(half2 a, half2 b) { return {__hmax(a.x, b.x), __hmax(a.y, b.y)}; }
inline half2 __hmin2(half2 a, half2 b) { return {__hmin(a.x, b.x), __hmin(a.y, b.y)}; }
inline half2 __hfma2(half2 a, half2 b, half2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
