// The threads of a block as fibers: each runs until it meets a barrier, a warp operation or its end.
//
// So are those of all blocks of a cluster.  Shared arrays are thread-local, so every block but the first one of a
// cluster has a thread of the host, which runs its fibers while the others wait.
#pragma once
#include <semaphore.h>
#include <ucontext.h>

#include <memory>
#include <unordered_map>

#include "memory.h"
#include "tensor_core.h"

enum State { READY, AT_BARRIER, AT_WARP, DONE, AT_MBARRIER, AT_NAMED, AT_GROUP, AT_CLUSTER };
// Those behind DONE are barriers.h's.
// As in cuda.h and mma.h.
enum WarpOp { SYNC, INDEX, UP, DOWN, XOR, BALLOT, MMA = EMU_MMA, LOAD = EMU_LOAD, STORE = EMU_STORE };

struct Fiber {
  State state;
  jmp_buf context;
  bool made;
  int line;                // of the barrier or warp operation it waits at
  WarpOp op;
  unsigned mask;
  uint64_t value, result;
  int operand, width;
  const void *asked;       // the mbarrier whose phase of a parity the thread has asked for in vain
  unsigned parity;
  bool polls, denied;      // it tests only; it is told that the phase is not complete
  int vain;                // how often it was told so while nothing else moved
};

struct Copy {  // on its way to shared memory
  void *to;
  size_t bytes;
  unsigned group;
  char data[16];
};

inline Fiber fibers[1024];
inline std::vector<Copy> copies[1024];  // that a thread has not waited for
inline unsigned groups[1024];           // that a thread has committed

inline const uint64_t UNDEFINED = ~(uint64_t)0;

// A product of a group of warps that was begun: what `run` does with `data` when its group is waited for.
struct Product {
  void (*run)(void *);
  unsigned group;
  std::shared_ptr<const Knowledge> known;  // what the thread knew when it was begun
  std::shared_ptr<const std::vector<uint32_t *>> sums;  // registers that are not to be touched until then
  alignas(16) char data[128];
};
inline std::vector<Product> products[1024];  // that a thread has not waited for
inline unsigned product_groups[1024];        // that a thread has committed
inline bool registers_fenced[1024];          // whether a thread has executed wgmma.fence
inline std::unordered_map<uint32_t *, uint32_t> held[1024];  // sums of these products; registers are NaN meanwhile

inline void hold(unsigned t, const Product &product) {
  for (uint32_t *sum : *product.sums)
    if (held[t].emplace(sum, *sum).second) *sum = UNDEFINED;
}

inline void give_back(unsigned t) {
  for (const auto &[sum, value] : held[t]) *sum = value;
  held[t].clear();
}
inline char *stacks;
inline jmp_buf scheduler;
inline void (*entry)(void **);
inline void **arguments;

inline void back_to_scheduler(Fiber &f) {
  if (!_setjmp(f.context)) _longjmp(scheduler, 1);
}

void settle_cluster();  // barriers.h

inline void fiber_main() {
  for (;;) {  // one turn a block
    entry(arguments);
    Fiber &f = fibers[here.thread];
    f.state = DONE;
    settle_cluster();
    back_to_scheduler(f);
  }
}

inline char *stack_of(unsigned t) { return stacks + (2 * t + 1) * STACK_BYTES; }  // below it a gap that faults

inline void reserve_stacks() {
  const size_t bytes = 2 * 1024 * STACK_BYTES;
  stacks = (char *)mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) refuse("no memory for the stacks of 1024 threads");
}

inline void start_fiber(unsigned t) {
  static ucontext_t context, unused;
  mprotect(stack_of(t), STACK_BYTES, PROT_READ | PROT_WRITE);
  getcontext(&context);
  context.uc_stack.ss_sp = stack_of(t);
  context.uc_stack.ss_size = STACK_BYTES;
  context.uc_link = nullptr;
  makecontext(&context, fiber_main, 0);
  fibers[t].made = true;
  swapcontext(&unused, &context);
}

inline sem_t turn[MOST_BLOCKS], turn_is_over;  // of the host's threads

inline void run_on_this_thread(unsigned t) {
  if (_setjmp(scheduler)) return;
  if (fibers[t].made) _longjmp(fibers[t].context, 1);
  start_fiber(t);
}

[[noreturn]] inline void run_fibers_of(unsigned rank) {
  for (;;) {
    sem_post(&turn_is_over);
    while (sem_wait(&turn[rank])) {}
    run_on_this_thread(here.thread);
  }
}

inline void run_until_it_waits(unsigned t) {
  stand_at(t);
  stack_start = (uintptr_t)stack_of(t);
  const unsigned rank = rank_of(t);
  if (rank == 0) return run_on_this_thread(t);
  sem_post(&turn[rank]);
  while (sem_wait(&turn_is_over)) {}
}

// ---------------------------------------------------------------- warps

inline unsigned lanes_alive(unsigned warp) {
  unsigned alive = 0;
  for (unsigned lane = 0; lane < 32 && warp * 32 + lane < threads; ++lane)
    if (fibers[warp * 32 + lane].state != DONE) alive |= 1u << lane;
  return alive;
}

inline uint64_t shuffled(const Fiber *warp, unsigned lane, unsigned exist) {
  const Fiber &me = warp[lane];
  const unsigned width = (unsigned)me.width, segment = lane & ~(width - 1), in = lane & (width - 1);
  unsigned from = lane;
  switch (me.op) {
    case INDEX: from = segment + ((unsigned)me.operand & (width - 1)); break;
    case UP: from = in < (unsigned)me.operand ? lane : lane - (unsigned)me.operand; break;
    case DOWN: from = in + (unsigned)me.operand >= width ? lane : lane + (unsigned)me.operand; break;
    case XOR: from = lane ^ (unsigned)me.operand; if (from >= segment + width) from = lane; break;
    default: break;
  }
  return from < 32 && (me.mask & exist) >> from & 1 ? warp[from].value : UNDEFINED;
}

// What all lanes do on the fragments that they hand over.
inline void together(const Fiber *lanes, unsigned exist) {
  if (~exist) {
    report("divergence", 0, 0, fibers[here.thread].line, "multiplies or loads matrices in a warp of fewer than 32 threads");
    stop();
  }
  void *handed[32];
  for (unsigned lane = 0; lane < 32; ++lane) handed[lane] = (void *)lanes[lane].value;
  if (lanes->op == MMA) multiply((EmuMmaLane *const *)handed);
  else if (lanes->op == STORE) store_matrices((EmuLoadLane *const *)handed);
  else load_matrices((EmuLoadLane *const *)handed);
}

inline void learn_in_warp(unsigned warp, unsigned mask) {
  static Knowledge all;
  bool first = true;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!(mask >> lane & 1)) continue;
    if (first) all = told(warp * 32 + lane), first = false;
    else all.learn(told(warp * 32 + lane));
  }
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) learn(warp * 32 + lane, all);
}

// Let the lanes of the running thread's mask go on when all of them have come.
inline void meet(unsigned warp) {
  Fiber *lanes = fibers + warp * 32, &me = fibers[here.thread];
  const unsigned exist = threads - warp * 32 >= 32 ? 0xffffffffu : (1u << (threads - warp * 32)) - 1;
  uint64_t votes = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!((me.mask & exist) >> lane & 1)) continue;
    const Fiber &f = lanes[lane];
    if (f.state != AT_WARP && f.state != DONE) return;  // not yet; a block in which nothing moves is reported
    if (f.state == DONE || f.mask != me.mask || f.op != me.op || f.line != me.line) {
      const char *text = f.state == DONE ? "waits in a warp operation for thread %s, which has ended"
                                         : "meets thread %s in a warp operation of another mask or at another line";
      report("divergence", 0, 0, me.line, text, name_of(warp * 32 + lane).c_str());
      stop();
    }
    votes |= (f.value & 1) << lane;
  }
  if (me.op == MMA || me.op == LOAD || me.op == STORE) together(lanes, exist);
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (!((me.mask & exist) >> lane & 1)) continue;
    lanes[lane].result = me.op == BALLOT ? votes : shuffled(lanes, lane, exist);
  }
  if (me.op == SYNC && (lanes_alive(warp) & ~me.mask) == 0) ++warp_time[warp];
  if (me.op == SYNC && in_parts) learn_in_warp(warp, me.mask & exist);
  for (unsigned lane = 0; lane < 32; ++lane)
    if ((me.mask & exist) >> lane & 1) lanes[lane].state = READY;
}

// ---------------------------------------------------------------- blocks

bool deliver();          // barriers.h
void report_deadlock();
void end_copies();       // copy_engine.h

[[noreturn]] inline void nothing_moves() {
  report_deadlock();
  const Fiber *waiting = nullptr, *other = nullptr;
  for (unsigned t = 0; t < threads; ++t)
    if (fibers[t].state != DONE && (waiting == nullptr || fibers[t].state == AT_BARRIER)) waiting = &fibers[t];
  for (unsigned t = 0; t < threads; ++t)
    if (fibers[t].state != waiting->state || fibers[t].line != waiting->line) other = &fibers[t];
  stand_at((unsigned)(waiting - fibers));
  const std::string name = other ? name_of((unsigned)(other - fibers)) : "?";
  const char *what = waiting->state == AT_BARRIER ? "at a barrier" : "in a warp operation";
  if (other != nullptr && other->state != DONE)
    report("divergence", 0, 0, waiting->line, "waits %s, and thread %s waits at line %d", what, name.c_str(),
           other->line);
  else
    report("divergence", 0, 0, waiting->line, "waits %s for thread %s, which has ended", what, name.c_str());
  stop();
}

// Open the barrier when every thread stands at it; false when every thread has ended.
inline bool next_epoch() {
  unsigned done = 0, same = 0;
  for (unsigned t = 0; t < threads; ++t) {
    done += fibers[t].state == DONE;
    same += fibers[t].state == AT_BARRIER && fibers[t].line == fibers[0].line;
  }
  if (done == threads) return false;
  if (same != threads) nothing_moves();
  if (in_parts) learn_all();
  epoch = ++now;
  memset(warp_time, 0, sizeof warp_time);
  for (unsigned t = 0; t < threads; ++t) fibers[t].state = READY;
  return true;
}

inline void run_blocks() {  // one, or those of a cluster, whose threads meet in parts
  epoch = block_start = ++now, in_parts = false;
  if (engines || blocks > 1) meet_in_parts();
  memset(warp_time, 0, sizeof warp_time);
  for (const Region &r : shared_arrays)  // NaN in every float type
    if (r.rank < blocks) memset((void *)r.start, 0xff, r.bytes);
  for (unsigned t = 0; t < threads; ++t) {
    fibers[t].state = READY, fibers[t].asked = nullptr, fibers[t].vain = 0;
    copies[t].clear(), groups[t] = 0, products[t].clear(), product_groups[t] = 0, held[t].clear();
    registers_fenced[t] = false;
  }
  do {
    for (bool moved = true; moved;) {
      moved = false;
      for (unsigned t = 0; t < threads; ++t)
        if (fibers[t].state == READY) run_until_it_waits(t), moved = true;
      if (!moved) moved = deliver();
    }
  } while (next_epoch());
  end_copies();
}
