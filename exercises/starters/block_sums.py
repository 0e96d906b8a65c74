"""Chapter 6, 25 minutes: threads that add up together.

A kernel of blocks of 256 threads adds up 256 elements of x a block, in shared memory: half of the threads add the upper
half to the lower one, then a quarter, and so on. Two things are missing: threads read what others wrote without waiting
for them, and n need not be a multiple of 256. Complete the CUDA text; the block emulator runs it, on the CPU, and tells
races, accesses out of bounds and barriers that only some threads reach.
"""

SOURCE = """
extern "C" __global__ void block_sums(const float *x, float *sums, int n) {
  __shared__ float part[256];
  int t = threadIdx.x, i = blockIdx.x * 256 + t;
  part[t] = x[i];  // what if i is beyond the end? ...
  for (int step = 128; step > 0; step /= 2) {
    if (t < step) part[t] += part[t + step];
  }
  if (t == 0) sums[blockIdx.x] = part[0];
}
"""
