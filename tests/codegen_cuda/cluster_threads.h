// A cluster as threads of the processor: every thread of its blocks is one, and what blocks send arrives at random times.
//
// MEMORY, THREADS, BLOCKS: bytes of shared memory, threads of a block, blocks of a cluster.
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
using std::min;
#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __cluster_dims__(...)
struct alignas(16) float4 { float x, y, z, w; };
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
struct Place { unsigned x = 0, y = 0, z = 0; };
static thread_local Place threadIdx, blockIdx;

struct Ready {  // a barrier of bytes: it is armed once a phase, and the phase ends when as many have come
  std::mutex lock;
  int left = 0, phase = 0;
  bool armed = false;
  void add(int bytes, bool arms) {
    std::lock_guard<std::mutex> held(lock);
    if (arms && armed) { std::puts("armed twice"); std::_Exit(3); }
    left += bytes, armed |= arms;
    if (armed && left == 0) phase += 1, armed = false;
  }
  int ended() { std::lock_guard<std::mutex> held(lock); return phase; }
};
struct Block {
  alignas(16) char memory[MEMORY];
  Ready ready[2];
  float lanes[THREADS];
  std::vector<std::unique_ptr<std::barrier<>>> warps;
  Block() {
    for (size_t k = 0; k < MEMORY / 4; ++k) ((float *)memory)[k] = NAN;
    for (int k = 0; k < THREADS / 32; ++k) warps.push_back(std::make_unique<std::barrier<>>(32));
  }
};
static Block *cluster;
static std::barrier<> *everyone;
static thread_local Block *mine;

static void meet() { everyone->arrive_and_wait(); }
static float __shfl_xor_sync(unsigned, float value, int bit) {
  std::barrier<> &warp = *mine->warps[threadIdx.x / 32];
  mine->lanes[threadIdx.x] = value;
  warp.arrive_and_wait();
  const float found = mine->lanes[threadIdx.x ^ bit];
  warp.arrive_and_wait();
  return found;
}
static void begin(Ready *) {}
static void expect(Ready *ready, int bytes) { ready->add(bytes, true); }
static void send(float *place, Ready *ready, int block, float value) {
  if (std::rand() % 8 == 0) std::this_thread::yield();
  Block &there = cluster[block];
  *(float *)(there.memory + ((char *)place - mine->memory)) = value;
  there.ready[ready - mine->ready].add(-4, false);
}
static void receive(Ready *ready, int parity) {
  while (ready->ended() % 2 == parity) std::this_thread::yield();
}

template <class Kernel> static void run_clusters(int grid, Kernel kernel) {
  for (int first = 0; first < grid; first += BLOCKS) {
    std::unique_ptr<Block[]> blocks(new Block[BLOCKS]);
    std::barrier<> all(BLOCKS * THREADS);
    cluster = blocks.get(), everyone = &all;
    std::vector<std::thread> threads;
    for (int k = 0; k < BLOCKS * THREADS; ++k)
      threads.emplace_back([=] {
        blockIdx.x = first + k / THREADS, threadIdx.x = k % THREADS, mine = cluster + k / THREADS;
        kernel();
      });
    for (std::thread &one : threads) one.join();
  }
}
static std::vector<float> read_floats(const std::string &path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<float> out(file.tellg() / 4);
  file.seekg(0).read((char *)out.data(), out.size() * 4);
  return out;
}
