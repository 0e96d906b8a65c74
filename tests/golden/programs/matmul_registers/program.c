/* matmul_registers: A[64, 48] float32, B[48, 64] float32, C[64, 64] float32 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef float f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
#define VEC(type, element) (*(type *)&(element))
#if defined(__aarch64__)
#define REGISTER_BYTES 16
#define IN_REGISTER "+w"
#elif defined(__SSE2__)
#define REGISTER_BYTES (__AVX512F__ ? 64 : __AVX__ ? 32 : 16)
#define IN_REGISTER "+v"
#else
#define REGISTER_BYTES 0
#endif
static inline f32x8 held_f32x8(f32x8 x) {
#if REGISTER_BYTES >= 32
  __asm__("" : IN_REGISTER(x));
#endif
  return x;
}

__attribute__((noinline)) void matmul_registers(const float *restrict A, const float *restrict B, float *restrict C) {
  #pragma omp parallel for
  for (int64_t i_0 = 0; i_0 < 16; ++i_0) {
    for (int64_t j_0 = 0; j_0 < 4; ++j_0) {
      #pragma GCC unroll 4
      for (int64_t i_1_init = 0; i_1_init < 4; ++i_1_init) {
        #pragma GCC unroll 2
        for (int64_t j_1_0_init = 0; j_1_0_init < 2; ++j_1_0_init) {
          VEC(f32x8, C[i_0 * 256 + i_1_init * 64 + j_0 * 16 + j_1_0_init * 8]) = (f32x8){0};
        }
      }
      {
        f32x8 C_r0, C_r1, C_r2, C_r3, C_r4, C_r5, C_r6, C_r7;
        C_r0 = VEC(f32x8, C[i_0 * 256 + j_0 * 16]);
        C_r1 = VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 8]);
        C_r2 = VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 64]);
        C_r3 = VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 72]);
        C_r4 = VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 128]);
        C_r5 = VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 136]);
        C_r6 = VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 192]);
        C_r7 = VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 200]);
        for (int64_t k = 0; k < 48; ++k) {
          const float A_v = A[i_0 * 192 + k];
          const f32x8 B_v = held_f32x8(VEC(f32x8, B[k * 64 + j_0 * 16]));
          C_r0 += A_v * B_v;
          const f32x8 B_v_1 = held_f32x8(VEC(f32x8, B[k * 64 + j_0 * 16 + 8]));
          C_r1 += A_v * B_v_1;
          const float A_v_1 = A[i_0 * 192 + k + 48];
          C_r2 += A_v_1 * B_v;
          C_r3 += A_v_1 * B_v_1;
          const float A_v_2 = A[i_0 * 192 + k + 96];
          C_r4 += A_v_2 * B_v;
          C_r5 += A_v_2 * B_v_1;
          const float A_v_3 = A[i_0 * 192 + k + 144];
          C_r6 += A_v_3 * B_v;
          C_r7 += A_v_3 * B_v_1;
        }
        VEC(f32x8, C[i_0 * 256 + j_0 * 16]) = C_r0;
        VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 8]) = C_r1;
        VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 64]) = C_r2;
        VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 72]) = C_r3;
        VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 128]) = C_r4;
        VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 136]) = C_r5;
        VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 192]) = C_r6;
        VEC(f32x8, C[i_0 * 256 + j_0 * 16 + 200]) = C_r7;
      }
    }
  }
}

double matmul_registers_seconds(int64_t number, const float *restrict A, const float *restrict B, float *restrict C) {
  struct timespec start, stop;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int64_t call = 0; call < number; ++call) matmul_registers(A, B, C);
  clock_gettime(CLOCK_MONOTONIC, &stop);
  return (double)(stop.tv_sec - start.tv_sec) + 1e-9 * (double)(stop.tv_nsec - start.tv_nsec);
}
