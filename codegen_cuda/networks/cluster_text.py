r"""Blocks of a cluster (from sm_90 on) that send each other numbers: helper functions in CUDA C++.

`meet` is the barrier of all threads of a cluster.  `send` writes to the shared memory of a block and counts the bytes
there at `ready`, a barrier in shared memory: a phase of it ends when all bytes have come that `expect` has said, and
`receive` waits for the end of a phase of that parity.  `begin` makes it; a `meet` must follow before others send.
"""

CLUSTER_HELPERS = r"""static __device__ __forceinline__ void meet() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
static __device__ __forceinline__ unsigned shared_address(const void *place) {
  return (unsigned)__cvta_generic_to_shared(place);
}
static __device__ __forceinline__ unsigned in_block(const void *place, int block) {
  unsigned there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(place)), "r"(block));
  return there;
}
static __device__ __forceinline__ void send(float *place, unsigned long long *ready, int block, float value) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
      :: "r"(in_block(place, block)), "f"(value), "r"(in_block(ready, block)) : "memory");
}
static __device__ __forceinline__ void begin(unsigned long long *ready) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;\nfence.mbarrier_init.release.cluster;"
      :: "r"(shared_address(ready)) : "memory");
}
static __device__ __forceinline__ void expect(unsigned long long *ready, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
      :: "r"(shared_address(ready)), "r"(bytes) : "memory");
}
static __device__ __forceinline__ void receive(unsigned long long *ready, int parity) {
  asm volatile("{\n.reg .pred done;\nagain:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}"
      :: "r"(shared_address(ready)), "r"(parity) : "memory");
}"""
