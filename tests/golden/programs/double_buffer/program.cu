/*
 * double_buffer: A[64, 64] float32, B[64, 64] float32, C[64, 64] float32
 * double_buffer_kernel0: grid 4 x 8 x 1, block 16 x 8 x 1, 1536 bytes of shared memory
 * Two tiles of each input in shared memory: the next ones are fetched while these are multiplied.
 */
#ifndef EMU_ASYNC  // the block emulator has its own
template <int bytes> static __device__ __forceinline__ void copy_async(void *to, const void *from, bool real) {
#if __CUDA_ARCH__ >= 800
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  const int size = real ? bytes : 0;
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 ::"r"(place), "l"(from), "n"(bytes), "r"(size) : "memory");
#else
  if constexpr (bytes == 16) *(int4 *)to = real ? *(const int4 *)from : make_int4(0, 0, 0, 0);
  else if constexpr (bytes == 8) *(int2 *)to = real ? *(const int2 *)from : make_int2(0, 0);
  else *(int *)to = real ? *(const int *)from : 0;
#endif
}
template <int bytes> static __device__ __forceinline__ void copy_async(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(from), "n"(bytes) : "memory");
#else
  copy_async<bytes>(to, from, true);
#endif
}
static __device__ __forceinline__ void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\n\tcp.async.wait_group 0;" ::: "memory");
#endif
}
#endif


extern "C" __global__ void __launch_bounds__(128) double_buffer_kernel0(const float *__restrict__ A, const float *__restrict__ B, float *__restrict__ C) {
  __shared__ __align__(16) float A_shared[128];
  __shared__ __align__(16) float B_shared[256];
  float C_local;
  C_local = 0.0f;
  if ((int)threadIdx.y < 4) {
    copy_async<4>(&A_shared[(int)threadIdx.y * 16 + (int)threadIdx.x], &A[(int)blockIdx.y * 512 + (int)threadIdx.y * 128 + ((int)threadIdx.x >> 3) * 64 + ((int)threadIdx.x & 7)]);
  }
  copy_async<4>(&B_shared[(int)threadIdx.y * 16 + (int)threadIdx.x], &B[(int)threadIdx.y * 64 + (int)blockIdx.x * 16 + (int)threadIdx.x]);
  for (int k_0 = 0; k_0 < 8; ++k_0) {
    copy_async_wait();
    __syncthreads();
    if (k_0 + 1 < 8) {
      if ((int)threadIdx.y < 4) {
        copy_async<4>(&A_shared[((k_0 + 1) & 1) * 64 + (int)threadIdx.y * 16 + (int)threadIdx.x], &A[(int)blockIdx.y * 512 + (int)threadIdx.y * 128 + ((int)threadIdx.x >> 3) * 64 + k_0 * 8 + ((int)threadIdx.x & 7) + 8]);
      }
      copy_async<4>(&B_shared[((k_0 + 1) & 1) * 128 + (int)threadIdx.y * 16 + (int)threadIdx.x], &B[k_0 * 512 + (int)threadIdx.y * 64 + (int)blockIdx.x * 16 + (int)threadIdx.x + 512]);
    }
    for (int k_1 = 0; k_1 < 8; ++k_1) {
      C_local += A_shared[(k_0 & 1) * 64 + (int)threadIdx.y * 8 + k_1] * B_shared[(k_0 & 1) * 128 + k_1 * 16 + (int)threadIdx.x];
    }
  }
  C[(int)blockIdx.y * 512 + (int)threadIdx.y * 64 + (int)blockIdx.x * 16 + (int)threadIdx.x] = C_local;
}
