/*
 * matmul_shared: A[64, 64] float32, B[64, 64] float32, C[64, 64] float32
 * matmul_shared_kernel0: grid 4 x 4 x 1, block 16 x 8 x 1, 1024 bytes of shared memory
 * Tiles of both inputs in shared memory, two virtual threads a thread, a barrier before and after the sums.
 */
extern "C" __global__ void __launch_bounds__(128) matmul_shared_kernel0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C) {
  __shared__ __align__(16) float A_shared[128];
  __shared__ __align__(16) float B_shared[128];
  float C_local[2];
  C_local[0] = 0.0f;
  C_local[1] = 0.0f;
  for (int k_0 = 0; k_0 < 8; ++k_0) {
    __syncthreads();
    A_shared[(int)threadIdx.y * 16 + (int)threadIdx.x] = A[(int)blockIdx.y * 1024 + (int)threadIdx.y * 128 + ((int)threadIdx.x >> 3) * 64 + k_0 * 8 + ((int)threadIdx.x & 7)];
    B_shared[(int)threadIdx.y * 16 + (int)threadIdx.x] = B[k_0 * 512 + (int)threadIdx.y * 64 + (int)blockIdx.x * 16 + (int)threadIdx.x];
    __syncthreads();
    for (int k_1 = 0; k_1 < 8; ++k_1) {
      C_local[0] += A_shared[(int)threadIdx.y * 8 + k_1] * B_shared[k_1 * 16 + (int)threadIdx.x];
      C_local[1] += A_shared[(int)threadIdx.y * 8 + k_1 + 64] * B_shared[k_1 * 16 + (int)threadIdx.x];
    }
  }
  C[(int)blockIdx.y * 1024 + (int)threadIdx.y * 64 + (int)blockIdx.x * 16 + (int)threadIdx.x] = C_local[0];
  C[(int)blockIdx.y * 1024 + (int)threadIdx.y * 64 + (int)blockIdx.x * 16 + (int)threadIdx.x + 512] = C_local[1];
}
