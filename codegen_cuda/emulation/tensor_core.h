// What a warp's lanes get from `mma.sync`, `ldmatrix` and `stmatrix`, by the maps of the table.
#pragma once
#include <cmath>
#include <cstring>

#include "bits.h"
#include "mma.h"

struct At { int row, column; };

inline At place_of(const EmuFragment &f, int lane, int value) {
  At at{0, 0};
  for (const EmuDigit &d : f.lane) at.row += lane % d.extent * d.row, at.column += lane % d.extent * d.column, lane /= d.extent;
  for (const EmuDigit &d : f.value)
    at.row += value % d.extent * d.row, at.column += value % d.extent * d.column, value /= d.extent;
  return at;
}

inline double number_of(const EmuElement &e, const uint32_t *registers, int value) {
  const uint32_t word = registers[value * e.bytes / 4] >> 8 * (value * e.bytes % 4);
  switch (e.dtype) {
    case EMU_FLOAT16: return emu_widen_half((uint16_t)word);
    case EMU_BFLOAT16: return emu_bits<float>(word << 16);
    case EMU_FLOAT32: return emu_bits<float>(word >> e.hidden << e.hidden);
    case EMU_INT8: return (int8_t)word;
    case EMU_INT32: return (int32_t)word;
    case EMU_FLOAT8_E5M2: return emu_widen_half((uint16_t)(word << 8));
    case EMU_FLOAT8_E4M3FN:  // bits of a half, whose exponent has a bias 8 larger
      return (word & 127) == 127 ? NAN : 256 * emu_widen_half((uint16_t)((word & 128) << 8 | (word & 127) << 7));
  }
  return 0;
}

inline void keep(const EmuElement &e, uint32_t *registers, int value, double x) {
  if (e.dtype == EMU_FLOAT32) registers[value] = emu_bits<uint32_t>((float)x);
  else if (e.dtype == EMU_INT32) registers[value] = (uint32_t)(int64_t)x;
  else {
    const int shift = 16 * (value % 2);
    registers[value / 2] = (registers[value / 2] & ~(0xffffu << shift)) | (uint32_t)emu_round_half(x) << shift;
  }
}

// Products are exact, their sum with C is rounded once; 32-bit integers wrap.
inline void multiply(EmuMmaLane *const *lanes) {
  const EmuMma &op = *lanes[0]->op;
  static double a[16][32], b[32][8];
  for (int lane = 0; lane < 32; ++lane) {
    for (int v = 0; v < op.a.values; ++v) {
      const At at = place_of(op.a, lane, v);
      a[at.row][at.column] = number_of(op.of_a, lanes[lane]->a, v);
    }
    for (int v = 0; v < op.b.values; ++v) {
      const At at = place_of(op.b, lane, v);
      b[at.row][at.column] = number_of(op.of_b, lanes[lane]->b, v);
    }
  }
  for (int lane = 0; lane < 32; ++lane)
    for (int v = 0; v < op.d.values; ++v) {
      const At at = place_of(op.d, lane, v);
      double sum = number_of(op.sum, lanes[lane]->c, v);
      for (int k = 0; k < op.k; ++k) sum += a[at.row][k] * b[k][at.column];
      keep(op.sum, lanes[lane]->d, v, sum);
    }
}

inline void load_matrices(EmuLoadLane *const *lanes) {
  const EmuLoad &op = *lanes[0]->op;
  for (int lane = 0; lane < 32; ++lane)
    for (int v = 0; v < op.fragment.values; ++v) {
      const At at = place_of(op.fragment, lane, v);
      memcpy((char *)lanes[lane]->d + 2 * v, (const char *)&lanes[at.row]->row + 2 * at.column, 2);
    }
}

// `stmatrix`: each lane gets the row that it has given the place of.
inline void store_matrices(EmuLoadLane *const *lanes) {
  const EmuLoad &op = *lanes[0]->op;
  for (int lane = 0; lane < 32; ++lane)
    for (int v = 0; v < op.fragment.values; ++v) {
      const At at = place_of(op.fragment, lane, v);
      memcpy((char *)&lanes[at.row]->row + 2 * at.column, (const char *)lanes[lane]->d + 2 * v, 2);
    }
}
