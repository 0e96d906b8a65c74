"""All threads meet before each step, those that have nothing to add, too."""

SOURCE = """
extern "C" __global__ void block_sums(const float *x, float *sums, int n) {
  __shared__ float part[256];
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  part[t] = i < n ? x[i] : 0.0f;
  for (int step = 128; step > 0; step /= 2) {
    __syncthreads();
    if (t < step) part[t] += part[t + step];
  }
  if (t == 0) sums[blockIdx.x] = part[0];
}
"""
