// What the host has to say: one line a finding, and where the emulation stands while it is made.
#pragma once
#include <csetjmp>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

struct Dim { unsigned v[3]; };

inline Dim unrank(unsigned rank, const Dim &d) {
  return {{rank % d.v[0], rank / d.v[0] % d.v[1], rank / d.v[0] / d.v[1]}};
}

struct Place {  // the thread that runs
  const char *kernel;
  Dim grid, block, at_block, at_thread;
  unsigned thread;       // its number
  unsigned first_block;  // of those that run together
};
inline Place here;

// The blocks of a cluster run together, and their threads are numbered through; another block runs alone.
inline unsigned blocks = 1, block_threads;
inline unsigned next_block = 1;  // how far apart their numbers in the grid are
inline unsigned rank_of(unsigned thread) { return thread / block_threads; }

inline uintptr_t module_base, module_end;  // the kernels' library
inline const size_t FINDINGS = 32;         // distinct ones; later ones are dropped

struct Seen {
  std::string kind;
  uintptr_t at, other;
  bool operator==(const Seen &) const = default;
};
inline std::vector<Seen> seen;

[[noreturn]] inline void refuse(const char *format, ...) {  // the job itself is wrong
  va_list list;
  va_start(list, format);
  printf("error\t");
  vprintf(format, list);
  printf("\n");
  va_end(list);
  exit(0);
}

inline uintptr_t offset_of(uintptr_t pc) { return pc >= module_base && pc < module_end ? pc - module_base : 0; }

// One finding at return address `pc`, with the address of a second access where there is one.
inline void report(const char *kind, uintptr_t pc, uintptr_t other, int line, const char *format, ...) {
  const Seen now{kind, pc ? offset_of(pc) : (uintptr_t)line, other};
  for (const Seen &old : seen)
    if (old == now) return;
  if (seen.size() == FINDINGS) return;
  seen.push_back(now);
  const Dim &b = here.at_block, &t = here.at_thread;
  printf("finding\t%s\t%s\t%u %u %u\t%u %u %u\t%lx\t%lx\t%d\t", kind, here.kernel, b.v[0], b.v[1], b.v[2], t.v[0],
         t.v[1], t.v[2], (unsigned long)offset_of(pc), (unsigned long)other, line);
  va_list list;
  va_start(list, format);
  vprintf(format, list);
  va_end(list);
  printf("\n");
  fflush(stdout);
}

[[noreturn]] void stop();  // host.cpp: the launch is given up

inline std::string name_of(unsigned thread) {
  const Dim at = unrank(thread % block_threads, here.block);
  char text[64];
  const int end = snprintf(text, sizeof text, "(%u, %u, %u)", at.v[0], at.v[1], at.v[2]);
  const unsigned rank = rank_of(thread);
  if (rank != rank_of(here.thread)) snprintf(text + end, sizeof text - (size_t)end, " of block %u", rank);
  return text;
}
