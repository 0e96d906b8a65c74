// IEEE binary16 as CUDA has it: sixteen bits, every operation in float and rounded once to nearest, ties to even.
#pragma once

inline uint16_t emu_round_half(double x) {
  const float near = (float)x;
  uint32_t f = emu_bits<uint32_t>(near);
  if ((double)near != x && near == near) {  // round to odd first, so that the second rounding is the only one
    const bool away = (near < 0 ? -(double)near : (double)near) > (x < 0 ? -x : x);
    f = (f - (away ? 1 : 0)) | 1;
  }
  const uint32_t sign = f >> 16 & 0x8000, rest = f & 0x7fffffff;
  if (rest >= 0x47800000) return (uint16_t)(sign | (rest > 0x7f800000 ? 0x7fff : 0x7c00));
  if (rest < 0x38800000) {  // below 2^-14: a multiple of 2^-24
    const float scaled = emu_bits<float>(rest) * 16777216.0f;
    uint32_t whole = (uint32_t)scaled;
    const float left = scaled - (float)whole;
    whole += left > 0.5f || (left == 0.5f && (whole & 1));
    return (uint16_t)(sign | whole);
  }
  const uint32_t up = 0xfff + (rest >> 13 & 1);
  return (uint16_t)(sign | ((rest - 0x38000000 + up) >> 13));
}

inline float emu_widen_half(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 1023;
  if (exponent == 31) return emu_bits<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent) return emu_bits<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float tiny = (float)fraction / 16777216.0f;
  return sign ? -tiny : tiny;
}

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
