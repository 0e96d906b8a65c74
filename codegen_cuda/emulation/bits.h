// Numbers as their bits: what the kernels' side and the host have in common.
#pragma once
#include <stdint.h>

template <class To, class From> inline To emu_bits(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "bits of two types of one size");
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

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
