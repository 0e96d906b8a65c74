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

struct Place {  // the thread that runs
  const char *kernel;
  Dim grid, block, at_block, at_thread;
  unsigned thread;  // rank in its block
};
inline Place here;

inline uintptr_t module_base, module_end;  // the kernels' library
inline jmp_buf stopped;                    // back to main(): the launch is given up
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

[[noreturn]] inline void stop() { _longjmp(stopped, 1); }

inline std::string name_of(unsigned thread) {
  const unsigned x = here.block.v[0], y = here.block.v[1];
  char text[64];
  snprintf(text, sizeof text, "(%u, %u, %u)", thread % x, thread / x % y, thread / x / y);
  return text;
}
