// What happened before what, in blocks whose threads also meet in parts: at mbarriers, at named barriers, in groups of
// warps.
//
// Time grows with every barrier.  `epoch` began when all threads of the block met last; what was done before it is
// known to all.  Within an epoch a thread knows what another one did before a time that it was told where they met (a
// vector clock); the copy engine is told of by barrier, tensor cores by warp.  `fenced` is what is known of
// through a proxy fence: of writes by instructions of threads, the copy engine and tensor cores see no more than that.
#pragma once
#include <algorithm>
#include <cstring>

#include "findings.h"

inline uint32_t now, launch_start, block_start, epoch;  // times
inline unsigned threads;                                // that run together
inline uint16_t warp_time[32];

enum { GROUP_THREADS = 128, MOST_WARPS = 32, MOST_BARRIERS = 256 };
enum { TENSOR = 1024, ENGINES = TENSOR + MOST_WARPS, AGENTS = ENGINES + MOST_BARRIERS };  // after the threads

// ids of accessors: 0..1023 one thread, 1024..1055 several threads of one warp, COPIED + the number of an mbarrier, and
enum : uint16_t { SEVERAL = 2000, OTHER_BLOCK, ATOMIC, IN_FLIGHT, TENSOR_CORES, BARRIER, COPIED = 3000 };

inline unsigned agents = ENGINES;  // in use: those from here on are none

struct Knowledge {
  uint32_t plain[AGENTS], fenced[1024];  // the time before which all that an agent did is known
  uint32_t epoch, made;                  // of what a thread knew when it began something: the epoch, and when that was
  void learn_fences(const Knowledge &other) {
    for (unsigned i = 0; i < threads; ++i) fenced[i] = std::max(fenced[i], other.fenced[i]);
  }
  void learn(const Knowledge &other) {
    for (unsigned i = 0; i < threads; ++i) plain[i] = std::max(plain[i], other.plain[i]);
    for (unsigned i = TENSOR; i < agents; ++i) plain[i] = std::max(plain[i], other.plain[i]);
    learn_fences(other);
  }
};

inline bool in_parts;                    // whether threads of the block have met in parts
inline Knowledge knowledge[1024];        // of each thread
inline unsigned versions[1024];          // how often it has learnt
inline const Knowledge *judged[1024];    // while tensor cores read for a thread: what it knew when it began the product

inline bool engines;                     // whether the kernels have instructions that go on by themselves

inline void meet_in_parts() {
  if (in_parts) return;
  in_parts = true, ++now;
  for (unsigned t = 0; t < threads; ++t) {
    std::fill_n(knowledge[t].fenced, threads, now);
    ++versions[t];
  }
}

inline const Knowledge &knows_now(unsigned t) {  // what thread t knows that begins something
  knowledge[t].epoch = epoch, knowledge[t].made = now++;
  return knowledge[t];
}

inline const Knowledge &told(unsigned t) {  // what thread t tells: its own deeds until now, too
  knowledge[t].plain[t] = ++now;
  return knowledge[t];
}

inline void learn(unsigned t, const Knowledge &other) {
  knowledge[t].learn(other);
  ++versions[t];
}

inline void fence(unsigned t) {
  meet_in_parts();
  told(t);
  for (unsigned u = 0; u < threads; ++u)
    knowledge[t].fenced[u] = std::max({knowledge[t].fenced[u], knowledge[t].plain[u], epoch});
  ++versions[t];
}

// All threads have met: each knows of all, and of fences what any of them knew.
inline void learn_all() {
  for (unsigned t = 1; t < threads; ++t) knowledge[0].learn_fences(knowledge[t]);
  ++versions[0];
  for (unsigned t = 1; t < threads; ++t) {
    memcpy(knowledge[t].fenced, knowledge[0].fenced, threads * sizeof(uint32_t));
    ++versions[t];
  }
}

inline uint16_t warp_of(uint16_t id) { return id < 1024 ? id >> 5 : id < 1056 ? id - 1024 : 0xffff; }

inline bool knows(unsigned t, unsigned agent, uint32_t time) {
  if (agent == t) return judged[t] == nullptr || time <= judged[t]->made;
  return time < (judged[t] ? *judged[t] : knowledge[t]).plain[agent];
}

// Whether an access of `id` at `time`, its warp's time `then`, is ordered before one of thread `t`.
inline bool ordered(uint16_t id, uint32_t time, uint16_t then, uint16_t t) {
  if (time < (judged[t] ? judged[t]->epoch : epoch)) return true;
  if (judged[t] == nullptr && (id == t || (warp_of(id) == t >> 5 && then != warp_time[t >> 5]))) return true;
  if (!in_parts) return false;
  return id < 1024 ? knows(t, id, time) : id >= COPIED && knows(t, ENGINES + id - COPIED, time);
}

// ---------------------------------------------------------------- readers of a place in shared memory

// The last read by threads of a warp; `lane` is 32 where several were not ordered.  Those by tensor cores for a warp
// stand behind those of warps: a warp waits for its own part of a product, and knows nothing of the others.
struct LastRead { uint32_t time, lane; };
enum { MOST_READERS = 2 * MOST_WARPS };

inline unsigned warps() { return (threads + 31) / 32; }
inline unsigned readers() { return 2 * warps(); }

inline bool known(const LastRead &read, unsigned reader, unsigned t) {
  if (read.time < epoch) return true;
  if (reader >= warps()) return knows(t, TENSOR + reader - warps(), read.time);
  if (read.lane < 32) return knows(t, reader * 32 + read.lane, read.time);
  for (unsigned u = reader * 32; u < std::min(threads, reader * 32 + 32); ++u)
    if (!knows(t, u, read.time)) return false;
  return true;
}

inline void note(LastRead *reads, unsigned t) {
  if (judged[t]) {
    reads[warps() + (t >> 5)] = {now, 0};
    return;
  }
  LastRead &mine = reads[t >> 5];
  mine = {now, known(mine, t >> 5, t) ? t & 31 : 32};
}

// A reader that thread t does not know of: the id of an accessor; 0xffff where there is none.
inline uint16_t unknown_reader(const LastRead *reads, unsigned t) {
  for (unsigned reader = 0; reader < readers(); ++reader) {
    if (known(reads[reader], reader, t)) continue;
    if (reader >= warps()) return TENSOR_CORES;
    return reads[reader].lane < 32 ? (uint16_t)(reader * 32 + reads[reader].lane) : (uint16_t)SEVERAL;
  }
  return 0xffff;
}
