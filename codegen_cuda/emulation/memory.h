// Which bytes a thread may touch, and who touched them last.
//
// Every buffer argument lies in a slot of its own, 64 GiB wide, so that no 32-bit index leads from one to another;
// shared arrays are found by their symbols, of which each block of a cluster has its own.  Each granule (an element, or
// less) has a cell that remembers its last write and its last reads in time, time being counted in barriers.  Threads of
// one warp may also be ordered by __syncwarp of all its live lanes, which counts per warp.
#pragma once
#include <sys/mman.h>

#include "order.h"

struct Cell {
  uint32_t write_time, read_time;
  uint16_t writer, reader;
  uint16_t write_warp_time, read_warp_time;
  uint32_t write_pc, read_pc;
};

struct Region {
  std::string name;
  uintptr_t start;
  size_t bytes;
  int shift;         // log2 of the granule's bytes
  size_t alignment;  // what the declaration promises; vector accesses beyond it are misaligned
  bool shared, ready;  // `ready`: holds values before the first write
  Cell *cells;
  LastRead *reads;   // of shared memory: `readers()` of each cell
  unsigned rank;     // of shared memory: that of its block in a cluster
};

inline const uintptr_t SLOTS = 0x100000000000;
inline const int SLOT_SHIFT = 36;
inline const uintptr_t IN_SLOT = (uintptr_t)1 << 35;

enum { MOST_BLOCKS = 8 };  // of a cluster
struct Window { uintptr_t start, end; };

inline std::vector<Region> buffers, shared_arrays;  // those of a cluster's first block, of the next one, ...
inline Window windows[MOST_BLOCKS];                 // the shared memory of each block
inline uintptr_t shared_start, shared_end;          // that of the running thread's block
inline uintptr_t stack_start;
inline const size_t STACK_BYTES = 1 << 17;
inline uint64_t accesses;

template <class T> inline T *shadow(size_t bytes, int shift, size_t each = 1) {
  const size_t size = ((bytes >> shift) + 1) * each * sizeof(T);
  void *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) refuse("no memory for the shadow of %zu bytes", bytes);
  return (T *)p;
}
inline Cell *new_cells(size_t bytes, int shift) { return shadow<Cell>(bytes, shift); }

inline Region *shared_array_of(uintptr_t a) {
  for (Region &r : shared_arrays)
    if (a - r.start < 32768 || a - r.start < r.bytes) return &r;
  return nullptr;
}

inline Region *region_of(uintptr_t a) {
  const uintptr_t slot = (a - SLOTS) >> SLOT_SHIFT;
  Region *own = a - shared_start < shared_end - shared_start ? shared_array_of(a) : nullptr;
  return own ? own : slot < buffers.size() ? &buffers[slot] : shared_array_of(a);
}

inline void stand_at(unsigned thread) {
  const unsigned rank = rank_of(thread);
  here.thread = thread;
  here.at_thread = unrank(thread - rank * block_threads, here.block);
  here.at_block = unrank(here.first_block + rank * next_block, here.grid);
  shared_start = windows[rank].start, shared_end = windows[rank].end;
}

inline std::string accessor(const Cell &c, bool write) {
  const uint32_t time = write ? c.write_time : c.read_time;
  const uint16_t id = write ? c.writer : c.reader;
  if (time < block_start || id == OTHER_BLOCK) return "another block";
  if (id == ATOMIC) return "an atomic of another thread";
  if (write && id == IN_FLIGHT) return "an asynchronous copy";
  if (id == TENSOR_CORES) return "tensor cores";
  if (id >= COPIED) return "the copy engine";
  return id < 1024 ? "thread " + name_of(id) : "other threads";
}

inline void race(const Region &r, size_t at, const Cell &c, bool write, bool past_write, uintptr_t pc) {
  const char *verb = write ? "writes" : "reads", *past = past_write ? "wrote" : "read";
  report("race", pc, past_write ? c.write_pc : c.read_pc, 0, "%s byte %zu of %s, which %s %s without a barrier between",
         verb, at, r.name.c_str(), accessor(c, past_write).c_str(), past);
}

inline void note_read(const Region &r, Cell &c, uint16_t t, uintptr_t pc) {
  const uint16_t warp = warp_time[t >> 5];
  if (c.read_time >= epoch) {
    if (c.reader == OTHER_BLOCK || c.reader == SEVERAL || (c.reader == t && c.read_warp_time == warp)) return;
    if (warp_of(c.reader) != t >> 5) c.reader = SEVERAL;
    else c.reader = c.read_warp_time == warp ? 1024 + (t >> 5) : t;
  } else {
    const bool before = c.read_time >= launch_start && (c.read_time < block_start || c.reader == OTHER_BLOCK);
    c.reader = before && !r.shared ? (uint16_t)OTHER_BLOCK : t;
  }
  c.read_time = now, c.read_warp_time = warp, c.read_pc = (uint32_t)offset_of(pc);
}

// Whether what a thread has written is there for tensor cores and the copy engine.
inline void judge_fence(const Region &r, const Cell &c, size_t at, const Knowledge &of, const char *verb,
                        uintptr_t pc) {
  if (c.writer < 1024 && c.write_time >= block_start && c.write_time >= of.fenced[c.writer])
    report("race", pc, c.write_pc, 0, "lets tensor cores or the copy engine %s byte %zu of %s, which %s wrote "
           "without fence.proxy.async between", verb, at, r.name.c_str(), accessor(c, true).c_str());
}

// Whether what thread t reads, by tensor cores or the copy engine where `judged`, is there for it.
inline void judge_read(const Region &r, const Cell &c, size_t at, uint16_t t, uintptr_t pc) {
  const uint32_t first = r.shared ? block_start : launch_start;
  if (c.write_time >= first) {
    if (c.writer == BARRIER)
      report("barrier", pc, c.write_pc, 0, "reads byte %zu of %s, where a barrier is in use", at, r.name.c_str());
    else if (c.writer == IN_FLIGHT)
      report("uninitialised", pc, c.write_pc, 0, "reads byte %zu of %s, whose asynchronous copy was not waited for", at,
             r.name.c_str());
    else if (c.write_time < block_start || !ordered(c.writer, c.write_time, c.write_warp_time, t))
      race(r, at, c, false, true, pc);
    else if (judged[t] && r.shared)
      judge_fence(r, c, at, *judged[t], "read", pc);
  } else if (!r.ready && (r.shared || c.write_time == 0)) {
    report("uninitialised", pc, 0, 0, "reads byte %zu of %s, which nothing has written", at, r.name.c_str());
  }
}

inline void read_cell(const Region &r, size_t i, uint16_t t, uintptr_t pc) {
  Cell &c = r.cells[i];
  judge_read(r, c, i << r.shift, t, pc);
  if (in_parts && r.shared) {
    note(r.reads + i * readers(), t);
    c.reader = t, c.read_pc = (uint32_t)offset_of(pc);
  } else {
    note_read(r, c, t, pc);
  }
}

// Whether all reads of a cell are ordered before a write by thread t; `reader` becomes one that is not.
inline bool all_read(const Region &r, Cell &c, size_t i, uint16_t t) {
  const uint32_t first = r.shared ? block_start : launch_start;
  if (in_parts && r.shared) {
    const uint16_t reader = unknown_reader(r.reads + i * readers(), t);
    if (reader != 0xffff) c.reader = reader, c.read_time = now;
    if (reader != 0xffff) return false;
  }
  return c.read_time < first || (c.read_time >= block_start && c.reader != OTHER_BLOCK &&
                                 ordered(c.reader, c.read_time, c.read_warp_time, t));
}

inline void write_cell(const Region &r, size_t i, uint16_t t, uint16_t writer, uintptr_t pc) {
  Cell &c = r.cells[i];
  const uint32_t first = r.shared ? block_start : launch_start;
  const bool atomics = writer == ATOMIC && c.writer == ATOMIC;
  if (c.writer == BARRIER && c.write_time >= block_start)
    report("barrier", pc, c.write_pc, 0, "writes byte %zu of %s, where a barrier is in use", i << r.shift,
           r.name.c_str());
  if (c.write_time >= first && !atomics &&
      (c.write_time < block_start || c.writer == IN_FLIGHT || !ordered(c.writer, c.write_time, c.write_warp_time, t)))
    race(r, i << r.shift, c, true, true, pc);
  else if (!all_read(r, c, i, t))
    race(r, i << r.shift, c, true, false, pc);
  c.write_time = now, c.writer = writer, c.write_warp_time = warp_time[t >> 5], c.write_pc = (uint32_t)offset_of(pc);
}

[[noreturn]] inline void out_of_bounds(const Region *r, uintptr_t a, size_t size, const char *verb, uintptr_t pc) {
  if (r == nullptr)
    report("out of bounds", pc, 0, 0, "%s %zu bytes that belong to no argument and no shared array", verb, size);
  else
    report("out of bounds", pc, 0, 0, "%s %zu bytes at byte %ld of %s, which has %zu", verb, size,
           (long)(a - r->start), r->name.c_str(), r->bytes);
  stop();
}

[[noreturn]] inline void misaligned(uintptr_t a, size_t size, uintptr_t pc, int line) {
  const Region *r = region_of(a);
  report("misaligned", pc, 0, line, "accesses %zu bytes at byte %ld of %s, which is not a multiple of %zu%s", size,
         r ? (long)(a - r->start) : (long)a, r ? r->name.c_str() : "memory", size,
         r && r->shared && r->alignment < size ? " for certain: the array's own alignment is less" : "");
  stop();
}

// One access of the running thread, from the code before `pc`; `as` is ATOMIC or IN_FLIGHT, or 0 for a plain one.
inline void access(uintptr_t a, size_t size, bool write, uint16_t as, uintptr_t pc) {
  if (a - stack_start < STACK_BYTES) return;
  ++accesses;
  Region *r = region_of(a);
  if (r == nullptr) {
    if (!write && a >= module_base && a + size <= module_end) return;  // a constant
    out_of_bounds(r, a, size, write ? "writes" : "reads", pc);
  }
  const size_t at = a - r->start;
  if (at >= r->bytes || size > r->bytes - at) out_of_bounds(r, a, size, write ? "writes" : "reads", pc);
  if ((a & (size - 1) & 15) || (r->shared && size > r->alignment)) misaligned(a, size, pc, 0);
  const uint16_t t = (uint16_t)here.thread;
  for (size_t i = at >> r->shift; i <= (at + size - 1) >> r->shift; ++i) {
    if (write) write_cell(*r, i, t, as ? as : t, pc);
    else read_cell(*r, i, t, pc);
  }
}

// The running thread has waited for its copy to `a`: from now on it is an ordinary write of its.
inline void arrive(uintptr_t a, size_t size) {
  Region *r = region_of(a);
  const size_t at = a - r->start;
  const uint16_t t = (uint16_t)here.thread;
  for (size_t i = at >> r->shift; i <= (at + size - 1) >> r->shift; ++i)
    r->cells[i].write_time = now, r->cells[i].writer = t, r->cells[i].write_warp_time = warp_time[t >> 5];
}
