/*
 * vector_loads: A[64, 128] float32, total[64] float32
 * vector_loads_kernel0: grid 2 x 1 x 1, block 32 x 1 x 1, 2048 bytes of shared memory
 * Four values a load, read together by all threads of a block into shared memory; the sums are unrolled.
 */
extern "C" __global__ void __launch_bounds__(32) vector_loads_kernel0(const float *__restrict__ A, float *__restrict__ total) {
  __shared__ __align__(16) float A_shared[512];
  total[(int)blockIdx.x * 32 + (int)threadIdx.x] = 0.0f;
  for (int k_0 = 0; k_0 < 8; ++k_0) {
    __syncthreads();
    #pragma unroll
    for (int ax0_ax1_0_0 = 0; ax0_ax1_0_0 < 4; ++ax0_ax1_0_0) {
      *(float4 *)(A_shared + ax0_ax1_0_0 * 128 + (int)threadIdx.x * 4) = *(const float4 *)(A + (int)blockIdx.x * 4096 + ax0_ax1_0_0 * 1024 + ((int)threadIdx.x >> 2) * 128 + k_0 * 16 + ((int)threadIdx.x & 3) * 4);
    }
    __syncthreads();
    #pragma unroll
    for (int k_1 = 0; k_1 < 16; ++k_1) {
      total[(int)blockIdx.x * 32 + (int)threadIdx.x] += A_shared[(int)threadIdx.x * 16 + k_1];
    }
  }
}
