// Instructions that the lanes of a warp do together on fragments: what a lane hands over.  Tables are those of
// ansor_ext/tensor_core/mma.py, written by emulated_ptx.py there.
#pragma once
#include <stdint.h>

enum EmuTogether { EMU_MMA = 16, EMU_LOAD, EMU_STORE };  // next to the warp operations
enum EmuDtype { EMU_FLOAT16, EMU_BFLOAT16, EMU_FLOAT32, EMU_INT8, EMU_INT32, EMU_FLOAT8_E4M3FN, EMU_FLOAT8_E5M2 };

struct EmuElement { EmuDtype dtype; int bytes, hidden; };  // `hidden` low bits are not read
struct EmuDigit { int extent, row, column; };
struct EmuFragment { int values; EmuDigit lane[3], value[3]; };

struct EmuMma {
  int m, n, k;
  EmuElement of_a, of_b, sum;
  EmuFragment a, b, d;
};
struct EmuMmaLane {
  const EmuMma *op;
  uint32_t a[4], b[4], c[4], d[4];
};

struct __attribute__((aligned(16))) EmuRow { uint32_t words[4]; };
struct EmuLoad {
  int count;
  EmuFragment fragment;  // of elements of two bytes
};
struct EmuLoadLane {
  const EmuLoad *op;
  EmuRow row;
  uint32_t d[4];
};
