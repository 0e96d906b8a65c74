/* rfactor: A[4, 4096] float32, total[4] float32 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef float f32x8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef float f32x4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef float f32x2 __attribute__((vector_size(8), aligned(4), may_alias));
#define VEC(type, element) (*(type *)&(element))

__attribute__((noinline)) void rfactor(const float *restrict A, float *restrict total) {
  float total_rf[32] __attribute__((aligned(64)));
  #pragma omp parallel for
  for (int64_t i = 0; i < 4; ++i) {
    VEC(f32x8, total_rf[i * 8]) = (f32x8){0};
    {
      f32x8 total_rf_r0;
      total_rf_r0 = VEC(f32x8, total_rf[i * 8]);
      for (int64_t k_o = 0; k_o < 512; ++k_o) {
        total_rf_r0 += VEC(f32x8, A[i * 4096 + k_o * 8]);
      }
      VEC(f32x8, total_rf[i * 8]) = total_rf_r0;
    }
  }
  for (int64_t ax0 = 0; ax0 < 4; ++ax0) {
    total[ax0] = 0.0f;
    {
      float total_rf_lanes[8] __attribute__((aligned(64)));
      VEC(f32x8, total_rf_lanes[0]) = VEC(f32x8, total_rf[ax0 * 8]);
      VEC(f32x4, total_rf_lanes[0]) = VEC(f32x4, total_rf_lanes[0]) + VEC(f32x4, total_rf_lanes[4]);
      VEC(f32x2, total_rf_lanes[0]) = VEC(f32x2, total_rf_lanes[0]) + VEC(f32x2, total_rf_lanes[2]);
      total_rf_lanes[0] += total_rf_lanes[1];
      total[ax0] += total_rf_lanes[0];
    }
  }
}

double rfactor_seconds(int64_t number, const float *restrict A, float *restrict total) {
  struct timespec start, stop;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int64_t call = 0; call < number; ++call) rfactor(A, total);
  clock_gettime(CLOCK_MONOTONIC, &stop);
  return (double)(stop.tv_sec - start.tv_sec) + 1e-9 * (double)(stop.tv_nsec - start.tv_nsec);
}
