// Barriers at which threads of a block meet in parts: mbarriers in shared memory, named barriers, groups of four warps;
// and that of a cluster of blocks.
//
// An mbarrier counts the arrivals and the bytes that its phase lacks; with the last of them the phase is complete and
// the next one begins.  A thread that asks for a phase too early is told so once, after the others have had their turn,
// and waits when it asks again: a kernel that does not ask again goes on too early.
//
// The file that EMULATION_TRACE names gets a line for each arrival, each complete phase and each thread that goes on
// behind one: what it is, block, thread, the barrier's place in its array, the phase, the bytes that are expected.
#pragma once
#include <deque>
#include <functional>

#include "block.h"

struct Mbarrier {
  uintptr_t at;
  unsigned slot, count, phase;
  int pending;
  int64_t bytes;            // expected, less those that have arrived
  Knowledge coming, done;   // what the arrivals of this phase tell, and those of the last one told
  uint16_t made_by;
  uint32_t made_at;
  bool fenced, live;
  std::vector<std::function<void()>> copies;  // on their way
  size_t on_the_way;                          // their bytes
};

struct Named { unsigned count, come; Knowledge told; std::vector<unsigned> waiting; };

inline std::deque<Mbarrier> mbarriers;
inline Named named[16 * MOST_BLOCKS];  // 16 of each block
inline const int MOST_COUNT = (1 << 20) - 1, MOST_VAIN = 1000;

inline std::string place_name(uintptr_t a) {
  const Region *r = region_of(a);
  char text[128];
  if (r == nullptr) snprintf(text, sizeof text, "address %#lx", (unsigned long)a);
  else snprintf(text, sizeof text, "byte %ld of %s", (long)(a - r->start), r->name.c_str());
  return text;
}

inline FILE *trace = getenv("EMULATION_TRACE") ? fopen(getenv("EMULATION_TRACE"), "w") : nullptr;

inline void trace_line(const char *what, const Mbarrier &b, unsigned phase, int64_t bytes) {
  if (trace == nullptr) return;
  fprintf(trace, "%s %u %u %ld %d %ld\n", what, here.first_block + rank_of(here.thread), here.thread % block_threads,
          (long)(b.at - region_of(b.at)->start), (int)phase, (long)bytes), fflush(trace);
}

inline bool watched;  // whether the kernels' accesses are looked at

[[noreturn]] inline void wrong(const char *kind, int line, const char *format, ...) {
  char text[400];
  va_list list;
  va_start(list, format);
  vsnprintf(text, sizeof text, format, list);
  va_end(list);
  report(kind, 0, 0, line, "%s", text);
  stop();
}

// A place in shared memory that an instruction is given.
inline Region &shared_place(uintptr_t a, size_t bytes, unsigned alignment, int line) {
  Region *r = region_of(a);
  if (r == nullptr || !r->shared || a - r->start > r->bytes || bytes > r->bytes - (a - r->start))
    wrong("out of bounds", line, "has a barrier or a copy of %zu bytes at %s", bytes, place_name(a).c_str());
  if ((a - shared_start) % alignment)
    wrong("misaligned", line, "has a barrier or a copy at %s, which is not a multiple of %u", place_name(a).c_str(),
          alignment);
  return *r;
}

// What an instruction does with memory for thread t.
inline void touch(uintptr_t a, size_t bytes, bool write, unsigned t, uintptr_t pc) {
  if (!watched) return;
  Region *r = region_of(a);
  const size_t at = a - r->start;
  for (size_t i = at >> r->shift; i <= (at + bytes - 1) >> r->shift; ++i)
    if (write) write_cell(*r, i, (uint16_t)t, (uint16_t)t, pc);
    else read_cell(*r, i, (uint16_t)t, pc);
}

inline Mbarrier *found(void *at) {
  for (Mbarrier &b : mbarriers)
    if (b.live && b.at == (uintptr_t)at) return &b;
  return nullptr;
}

// A barrier that the running thread uses, which must know that it was made.
inline Mbarrier &mbarrier(void *at, int line) {
  Mbarrier *b = found(at);
  const std::string place = place_name((uintptr_t)at);
  if (b == nullptr) wrong("barrier", line, "uses a barrier at %s, where none was initialised", place.c_str());
  if (!ordered(b->made_by, b->made_at, 0xffff, (uint16_t)here.thread))
    wrong("barrier", line, "uses the barrier at %s, which thread %s initialises without a barrier between",
          place.c_str(), name_of(b->made_by).c_str());
  return *b;
}

inline void make_mbarrier(void *at, int line, unsigned count) {
  const std::string place = place_name((uintptr_t)at);
  if (found(at)) wrong("barrier", line, "initialises the barrier at %s again, which is in use", place.c_str());
  if (count < 1 || count > (unsigned)MOST_COUNT)
    wrong("barrier", line, "initialises the barrier at %s with a count of %u", place.c_str(), count);
  if (mbarriers.size() == MOST_BARRIERS)
    wrong("barrier", line, "initialises more than %d barriers", (int)MOST_BARRIERS);
  meet_in_parts();
  mbarriers.emplace_back();
  Mbarrier &b = mbarriers.back();
  agents = ENGINES + (unsigned)mbarriers.size();
  b.at = (uintptr_t)at, b.slot = (unsigned)mbarriers.size() - 1, b.count = count, b.pending = (int)count;
  b.made_by = (uint16_t)here.thread, b.made_at = now, b.live = true;
}

// From now on the bytes of a barrier were written by `writer`.
inline void own(void *at, uint16_t writer) {
  Region &r = *region_of((uintptr_t)at);
  const size_t first = (uintptr_t)at - r.start;
  for (size_t i = first >> r.shift; i <= (first + 7) >> r.shift; ++i)
    r.cells[i].writer = writer, r.cells[i].write_time = now;
}

inline bool passed(const Mbarrier &b, unsigned parity) { return (b.phase & 1) != parity; }

// Begin the next phase if this one lacks nothing.
inline void settle(Mbarrier &b) {
  if (b.pending != 0 || b.bytes != 0) return;
  trace_line("complete", b, b.phase, 0);
  b.done = b.coming, ++b.phase, b.pending = (int)b.count;
  for (unsigned t = 0; t < threads; ++t)
    if (fibers[t].state == AT_MBARRIER && fibers[t].asked == &b && passed(b, fibers[t].parity)) fibers[t].state = READY;
}

inline void arrive_at(Mbarrier &b, int line, unsigned arrivals, int64_t bytes) {
  const std::string place = place_name(b.at);
  b.bytes += bytes;
  if (b.bytes > MOST_COUNT || b.bytes < -MOST_COUNT)
    wrong("barrier", line, "makes the barrier at %s expect %ld bytes", place.c_str(), (long)b.bytes);
  b.pending -= (int)arrivals;
  if (b.pending < 0)
    wrong("barrier", line, "arrives at the barrier at %s once too often: its phase %u has all of its %u arrivals",
          place.c_str(), b.phase, b.count);
  b.coming.learn(told(here.thread));
  trace_line("arrive", b, b.phase, bytes);
  settle(b);
}

// `polls`: a thread that only tests is told that a phase is not complete whenever nothing else moves, so many times.
inline bool wait_at(Mbarrier &b, int line, unsigned parity, bool polls) {
  Fiber &f = fibers[here.thread];
  if (parity > 1) wrong("barrier", line, "waits for parity %u of the barrier at %s", parity, place_name(b.at).c_str());
  if (!passed(b, parity)) {
    const bool again = f.asked == &b && f.parity == parity;
    f.asked = &b, f.parity = parity, f.line = line, f.polls = polls, f.denied = !again;
    f.state = again ? AT_MBARRIER : READY;
    back_to_scheduler(f);
    if (f.denied) return false;
  }
  f.asked = nullptr, f.vain = 0;
  trace_line("pass", b, b.phase - 1, 0);
  learn(here.thread, b.done);
  return true;
}

// Let what is on its way to a barrier arrive, when threads wait for that alone; false where they wait for more.
inline bool deliver() {
  for (unsigned t = 0; t < threads; ++t) {
    if (fibers[t].state != AT_MBARRIER) continue;
    Mbarrier &b = *(Mbarrier *)fibers[t].asked;
    if (b.pending != 0 || b.copies.empty()) continue;
    stand_at(t);
    if ((int64_t)b.on_the_way > b.bytes)
      wrong("barrier", fibers[t].line, "waits for phase %u of the barrier at %s, which expects %ld bytes, and %zu are "
            "on their way", b.phase, place_name(b.at).c_str(), (long)b.bytes, b.on_the_way);
    for (const auto &copy : b.copies) copy();
    b.bytes -= (int64_t)b.on_the_way, b.on_the_way = 0;
    b.copies.clear();
    b.coming.plain[ENGINES + b.slot] = ++now;
    settle(b);
    return true;
  }
  bool any = false;
  for (unsigned t = 0; t < threads; ++t) {
    Fiber &f = fibers[t];
    if (f.state == AT_MBARRIER && f.polls && ++f.vain < MOST_VAIN) f.state = READY, f.denied = any = true;
  }
  return any;
}

// ---------------------------------------------------------------- named barriers

inline void meet_at(int line, unsigned id, unsigned count, bool waits) {
  count = count ? count : block_threads;
  if (id > 15 || count % 32 || count > block_threads)
    wrong("barrier", line, "waits at barrier %u for %u threads of %u", id, count, block_threads);
  meet_in_parts();
  const unsigned number = rank_of(here.thread) * 16 + id;
  Named &n = named[number];
  if (n.come && n.count != count)
    wrong("barrier", line, "waits at barrier %u for %u threads, and another one for %u", id, count, n.count);
  n.count = count, ++n.come;
  n.told.learn(told(here.thread));
  Fiber &f = fibers[here.thread];
  if (waits) n.waiting.push_back(here.thread), f.state = AT_NAMED, f.line = line, f.operand = (int)number;
  if (n.come == count) {
    for (unsigned t : n.waiting) fibers[t].state = READY, learn(t, n.told);
    n.waiting.clear(), n.come = 0;
  }
  if (f.state != READY) back_to_scheduler(f);
}

// ---------------------------------------------------------------- groups of four warps

inline void meet_group(int line) {
  const unsigned first = here.thread / GROUP_THREADS * GROUP_THREADS;
  if (first + GROUP_THREADS > threads)
    wrong("divergence", line, "needs a group of %d threads, and has less", (int)GROUP_THREADS);
  Fiber &me = fibers[here.thread];
  me.state = AT_GROUP, me.line = line;
  unsigned come = 0;
  for (unsigned t = first; t < first + GROUP_THREADS; ++t) {
    const Fiber &f = fibers[t];
    if (f.state == DONE || (f.state == AT_GROUP && f.line != line))
      wrong("divergence", line, "waits in its group of warps for thread %s, which %s", name_of(t).c_str(),
            f.state == DONE ? "has ended" : "waits at another line");
    come += f.state == AT_GROUP;
  }
  if (come == GROUP_THREADS)
    for (unsigned t = first; t < first + GROUP_THREADS; ++t) fibers[t].state = READY;
  if (me.state != READY) back_to_scheduler(me);
}

// ---------------------------------------------------------------- clusters of blocks

// The barrier of all threads of a cluster that have not ended: `over` phases of it are complete.
inline unsigned over, arrived[1024], waited[1024];  // how often each thread did so
inline Knowledge cluster_coming, cluster_done;

inline void settle_cluster() {
  bool any = false;
  for (unsigned t = 0; t < threads; ++t) {
    if (arrived[t] == over && fibers[t].state != DONE) return;
    any |= arrived[t] > over;
  }
  if (!any) return;
  cluster_done = cluster_coming, ++over;
  for (unsigned t = 0; t < threads; ++t)
    if (fibers[t].state == AT_CLUSTER) fibers[t].state = READY;
}

inline void arrive_in_cluster(int line) {
  const unsigned t = here.thread;
  if (arrived[t] != waited[t]) wrong("barrier", line, "arrives at the barrier of the cluster again without waiting");
  meet_in_parts();
  cluster_coming.learn(told(t));
  ++arrived[t];
  settle_cluster();
}

inline void wait_in_cluster(int line) {
  const unsigned t = here.thread;
  if (arrived[t] == waited[t]) wrong("barrier", line, "waits at the barrier of the cluster, where it has not arrived");
  Fiber &f = fibers[t];
  if (over < arrived[t]) f.state = AT_CLUSTER, f.line = line, back_to_scheduler(f);
  waited[t] = arrived[t];
  learn(t, cluster_done);
}

// An address in shared memory of a cluster is one in that of a block, with the block's rank and 1 above it.
enum { RANK_SHIFT = 24 };

inline uintptr_t place_in_cluster(unsigned place, int line) {
  const unsigned rank = place >> RANK_SHIFT;
  if (rank > blocks) wrong("out of bounds", line, "has a place in shared memory of no block: %#x", place);
  return (rank == 0 ? shared_start : windows[rank - 1].start) + (place & ((1u << RANK_SHIFT) - 1));
}

// A block of a cluster to which the running thread does something must not have ended.
inline void must_run(unsigned rank, int line, const char *what) {
  for (unsigned t = 0; t < block_threads; ++t)
    if (fibers[rank * block_threads + t].state != DONE) return;
  wrong("cluster", line, "%s block %u of the cluster, which has ended", what, rank);
}

// What each thread did last to the shared memory of each other block.
struct Reached { uint32_t time; int line; const char *what; };
inline Reached reached[MOST_BLOCKS][1024];

inline uintptr_t reach(unsigned place, unsigned bytes, int line, const char *what) {
  const uintptr_t at = place_in_cluster(place, line);
  const unsigned rank = shared_place(at, bytes, bytes, line).rank;
  if (rank != rank_of(here.thread)) must_run(rank, line, what), reached[rank][here.thread] = {now, line, what};
  return at;
}

// Blocks may end as soon as they can: one thread of each must know of all arrivals there.
inline void judge_ends() {
  for (unsigned t = 0; t < threads; ++t) {
    for (unsigned rank = 0; rank < blocks; ++rank) {
      Reached &last = reached[rank][t];
      bool known = last.time == 0;
      for (unsigned u = rank * block_threads; u < (rank + 1) * block_threads && !known; ++u)
        known = knows(u, t, last.time);
      stand_at(t);
      if (!known)
        report("cluster", 0, 0, last.line, "%s block %u of the cluster, which may have ended: it does not wait for that",
               last.what, rank);
      last.time = 0;
    }
    arrived[t] = waited[t] = 0;
  }
  over = 0;
}

// ---------------------------------------------------------------- when nothing moves

inline std::string what_it_waits_for(const Fiber &f) {
  char text[200] = "waits for the other warps of its group";
  if (f.state == AT_MBARRIER) {
    const Mbarrier &b = *(const Mbarrier *)f.asked;
    snprintf(text, sizeof text, "waits for phase %u of the barrier at %s, which lacks %d of %u arrivals and %ld bytes",
             b.phase, place_name(b.at).c_str(), b.pending, b.count, (long)b.bytes - (long)b.on_the_way);
  } else if (f.state == AT_NAMED) {
    const Named &n = named[f.operand];
    snprintf(text, sizeof text, "waits at barrier %d for %u of %u threads", f.operand % 16, n.count - n.come, n.count);
  } else if (f.state == AT_CLUSTER) {
    unsigned missing = 0;
    for (unsigned t = 0; t < threads; ++t) missing += fibers[t].state != DONE && arrived[t] == over;
    snprintf(text, sizeof text, "waits at the barrier of the cluster for %u of %u threads", missing, threads);
  }
  return text;
}

// One finding, of all that is waited for: a deadlock has several sides.
inline void report_deadlock() {
  std::vector<std::string> sides;
  std::string all;
  for (unsigned t = 0; t < threads; ++t) {
    if (fibers[t].state <= DONE) continue;
    const std::string side = what_it_waits_for(fibers[t]);
    if (std::find(sides.begin(), sides.end(), side) != sides.end()) continue;
    if (sides.empty()) stand_at(t);
    all += sides.empty() ? side : "; thread " + name_of(t) + " " + side;
    sides.push_back(side);
  }
  if (sides.empty()) return;
  report("deadlock", 0, 0, fibers[here.thread].line, "%s", all.c_str());
  stop();
}

inline void forget_barriers() {
  agents = ENGINES;
  mbarriers.clear();
  for (Named &n : named) n.come = 0, n.waiting.clear();
}

#define CALLER ((uintptr_t)__builtin_return_address(0) - 1)
extern "C" {
void emu_mbarrier_init(int line, void *at, unsigned count) {
  shared_place((uintptr_t)at, 8, 8, line);
  if (found(at) == nullptr) touch((uintptr_t)at, 8, true, here.thread, CALLER);
  make_mbarrier(at, line, count);
  own(at, BARRIER);
}
void emu_mbarrier_invalidate(int line, void *at) {
  mbarrier(at, line).live = false;
  own(at, (uint16_t)here.thread);
}
void emu_mbarrier_arrive(int line, void *at, unsigned arrivals, int bytes) {
  arrive_at(mbarrier(at, line), line, arrivals, bytes);
}
int emu_mbarrier_wait(int line, void *at, unsigned parity, int polls) {
  return wait_at(mbarrier(at, line), line, parity, polls != 0);
}
void emu_fence_barriers() {
  for (Mbarrier &b : mbarriers) b.fenced |= b.made_by == here.thread;
}
void emu_fence_proxy() {
  fence(here.thread);
  emu_fence_barriers();
}
void emu_mbarrier_arrive_in_cluster(int line, unsigned place, unsigned arrivals) {
  arrive_at(mbarrier((void *)reach(place, 8, line, "arrives at a barrier of"), line), line, arrivals, 0);
}
unsigned emu_map_to_block(int line, unsigned place, unsigned rank) {
  if (rank >= blocks) wrong("out of bounds", line, "names block %u of a cluster of %u", rank, blocks);
  return (place & ((1u << RANK_SHIFT) - 1)) | (rank + 1) << RANK_SHIFT;
}
unsigned emu_cluster_rank() { return rank_of(here.thread); }
unsigned emu_cluster_blocks() { return blocks; }
void emu_cluster_arrive(int line) { arrive_in_cluster(line); }
void emu_cluster_wait(int line) { wait_in_cluster(line); }
void emu_meet_at(int line, unsigned id, unsigned count, int waits) { meet_at(line, id, count, waits != 0); }
void emu_registers(int line, int count) {
  if (count % 8 || count < 24 || count > 256)
    wrong("divergence", line, "asks for %d registers a thread: multiples of 8 from 24 to 256", count);
  meet_group(line);
}
}
