/* elementwise: A[12, 7] float32, bias[7] float32, out[12, 7] float32 */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

static inline float max_f32(float a, float b) { return (a > b) | (a != a) ? a : b; }

__attribute__((noinline)) void elementwise(const float *restrict A, const float *restrict bias, float *restrict out) {
  #pragma omp parallel for
  for (int64_t i_j = 0; i_j < 84; ++i_j) {
    out[i_j] = max_f32(0.0f, A[i_j] * 2.0f + bias[i_j % 7]);
  }
}

double elementwise_seconds(int64_t number, const float *restrict A, const float *restrict bias, float *restrict out) {
  struct timespec start, stop;
  clock_gettime(CLOCK_MONOTONIC, &start);
  for (int64_t call = 0; call < number; ++call) elementwise(A, bias, out);
  clock_gettime(CLOCK_MONOTONIC, &stop);
  return (double)(stop.tv_sec - start.tv_sec) + 1e-9 * (double)(stop.tv_nsec - start.tv_nsec);
}
