/*
 * cross_thread: A[16, 1000] float32, total[16] float32
 * cross_thread_kernel0: grid 16 x 1 x 1, block 32 x 1 x 1, 0 bytes of shared memory
 * A row is summed by the 32 threads of a block, which then add their sums up.
 */
extern "C" __global__ void __launch_bounds__(32) cross_thread_kernel0(const float *__restrict__ A, float *__restrict__ total) {
  float total_part;
  float total_total;
  total_part = 0.0f;
  for (int k_0 = 0; k_0 < 32; ++k_0) {
    if (k_0 * 32 + (int)threadIdx.x < 1000) {
      total_part += A[(int)blockIdx.x * 1000 + k_0 * 32 + (int)threadIdx.x] * A[(int)blockIdx.x * 1000 + k_0 * 32 + (int)threadIdx.x];
    }
  }
  {  // sum over threadIdx.x in 0..32
    float x = total_part;
    #pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
      const float y = __shfl_xor_sync(0xffffffffu, x, offset);
      x = x + y;
    }
    total_total = x;
  }
  if ((int)threadIdx.x == 0) {
    total[(int)blockIdx.x] = total_total;
  }
}
