/* The threads of a network: what gcc calls where a program says `omp parallel` (libgomp manual, "The libgomp ABI").

   The body of a parallel region runs once for each of its shares, and whoever is free takes the next one.  The caller
   begins at once; a thread that comes late, because it slept or another process has its core, finds nothing left and
   nobody waits for it.  OpenMP's own library waits for every thread, also for those that have not begun: beside other
   processes that is milliseconds in each kernel of a network.

   A region is one loop that counts up, with nothing behind it that waits for the other threads: that is all the emitter
   writes.  Of what waits the linker misses a name, of other loops the program ends.  A caller whose library is in use by
   another one computes by itself.  Every network has its own threads; they have the processors and the priority of the
   caller for whom they were started, and end when there was nothing to do for a while. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define APART _Alignas(64) /* in a cache line of its own */
#ifndef IDLE_SECONDS
#define IDLE_SECONDS 10
#endif

enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129 }; /* of <linux/futex.h>, which is not everywhere */
enum { UNKNOWN, BEING_SET, KNOWN };
enum { MOST_THREADS = 4096 };

typedef struct {
  void (*body)(void *);
  void *data;
  uint32_t shares;
  long end, step; /* of a loop whose turns are asked for, `step` at a time */
  _Atomic int loop;
  APART _Atomic long turn;
} Region;

/* Where threads wait for a word to change: they look for it a while, then they sleep. */
typedef struct {
  APART _Atomic uint32_t word;
  _Atomic uint32_t sleepers;
} Place;

static long spins;
static uint32_t usual_threads;

static pthread_mutex_t in_use = PTHREAD_MUTEX_INITIALIZER; /* what follows, by the caller whose region it is */
static uint32_t started;                     /* threads beside callers */
static uint32_t possible = MOST_THREADS - 1; /* of them, as far as is known */
static Region *region;
static APART _Atomic int32_t untaken; /* shares that nobody has taken; below 0, too */
static Place regions;                 /* how many there have been */
static Place left;                    /* shares that are not done */

static _Thread_local Region *mine;
static _Thread_local uint32_t number;
static _Thread_local bool asked; /* for turns of the region's loop, in this share */

static void require(bool held, const char *otherwise) {
  if (held) return;
  fprintf(stderr, "team: %s\n", otherwise);
  abort();
}

static void look_again(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Wait until the word of `place` is no longer `old`; false where that takes longer than `patience`, if there is one. */
static bool await_change(Place *place, uint32_t old, const struct timespec *patience) {
  for (long k = 0; k < spins; ++k, look_again())
    if (atomic_load_explicit(&place->word, memory_order_acquire) != old) return true;
  atomic_fetch_add(&place->sleepers, 1);
  bool late = false;
  while (atomic_load(&place->word) == old && !late)
    late = syscall(SYS_futex, &place->word, FUTEX_WAIT_PRIVATE, old, patience, NULL, 0) && errno == ETIMEDOUT;
  atomic_fetch_sub(&place->sleepers, 1);
  return !late;
}

static void wake(Place *place, uint32_t count) {
  if (atomic_load(&place->sleepers)) syscall(SYS_futex, &place->word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static void run_share(Region *r, uint32_t share) {
  Region *outer = mine;
  uint32_t outer_number = number;
  bool outer_asked = asked;
  mine = r, number = share, asked = false;
  r->body(r->data);
  mine = outer, number = outer_number, asked = outer_asked;
}

/* Take a share and run it; false where there is none.  A region lasts until its last share is done, so `region` is that
   of the share. */
static bool take_share(void) {
  int32_t seen = atomic_load(&untaken);
  if (seen <= 0 || (seen = atomic_fetch_sub(&untaken, 1)) <= 0) return false;
  run_share(region, region->shares - (uint32_t)seen);
  if (atomic_fetch_sub(&left.word, 1) == 1) wake(&left, 1);
  return true;
}

/* A thread that has waited for long ends, unless somebody has a region just now. */
static void *work(void *unused) {
  const struct timespec patience = {.tv_sec = IDLE_SECONDS};
  for (;;) {
    uint32_t seen = atomic_load(&regions.word);
    while (take_share()) {}
    if (!await_change(&regions, seen, &patience) && !pthread_mutex_trylock(&in_use)) break;
  }
  --started;
  pthread_mutex_unlock(&in_use);
  return unused;
}

/* Threads for `shares` shares, as many as the system gives: a caller does what they do not. */
static void start(uint32_t shares) {
  pthread_t thread;
  while (started + 1 < shares && started < possible) {
    if (pthread_create(&thread, NULL, work, NULL)) {
      possible = started;
      return;
    }
    pthread_detach(thread);
    ++started;
  }
}

static void run_together(Region *r) {
  start(r->shares);
  region = r;
  atomic_store(&left.word, r->shares);
  atomic_store(&untaken, (int32_t)r->shares);
  atomic_fetch_add(&regions.word, 1);
  wake(&regions, r->shares - 1);
  while (take_share()) {}
  for (uint32_t still; (still = atomic_load(&left.word));) await_change(&left, still, NULL);
}

static void run(Region *r, unsigned threads) {
  r->shares = !threads ? usual_threads : threads < MOST_THREADS ? threads : MOST_THREADS;
  if (r->shares > 1 && !mine && !pthread_mutex_trylock(&in_use)) {
    run_together(r);
    pthread_mutex_unlock(&in_use);
  } else {
    r->shares = 1;
    run_share(r, 0);
  }
}

static bool next_turns(Region *r, long *first, long *end) {
  if (atomic_load_explicit(&r->turn, memory_order_relaxed) >= r->end) return false;
  *first = atomic_fetch_add(&r->turn, r->step);
  *end = *first + r->step < r->end ? *first + r->step : r->end;
  return *first < r->end;
}

/* ------------------------------------------------------------------------------------ what gcc and OpenMP call it */

int omp_get_num_threads(void) { return mine ? (int)mine->shares : 1; }
int omp_get_thread_num(void) { return (int)number; }

void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags) {
  run(&(Region){.body = body, .data = data, .loop = UNKNOWN}, threads);
}

/* A region that is nothing but a loop whose turns are asked for. */
void GOMP_parallel_loop_dynamic(void (*body)(void *), void *data, unsigned threads, long first, long end, long step,
                                long turns, unsigned flags) {
  require(step > 0, "a loop that counts down");
  run(&(Region){.body = body, .data = data, .end = end, .step = step * turns, .loop = KNOWN, .turn = first}, threads);
}

bool GOMP_loop_dynamic_next(long *first, long *end) { return next_turns(mine, first, end); }

/* Such a loop inside a region; whoever comes first sets it up. */
bool GOMP_loop_dynamic_start(long first, long end, long step, long turns, long *from, long *to) {
  require(mine && !asked, "a loop that is not the only one of its parallel region");
  require(step > 0, "a loop that counts down");
  asked = true;
  int loop = UNKNOWN;
  if (atomic_compare_exchange_strong(&mine->loop, &loop, BEING_SET)) {
    mine->end = end, mine->step = step * turns;
    atomic_store(&mine->turn, first);
    atomic_store(&mine->loop, KNOWN);
  }
  for (long k = 1; atomic_load(&mine->loop) != KNOWN; ++k, look_again())
    if (k % 1000 == 0) sched_yield();
  return next_turns(mine, from, to);
}

void GOMP_loop_end_nowait(void) {}

#define SAME(name, as) extern __typeof__(as) name __attribute__((alias(#as)))
SAME(GOMP_parallel_loop_nonmonotonic_dynamic, GOMP_parallel_loop_dynamic);
SAME(GOMP_loop_nonmonotonic_dynamic_next, GOMP_loop_dynamic_next);
SAME(GOMP_loop_nonmonotonic_dynamic_start, GOMP_loop_dynamic_start);

/* ---------------------------------------------------------------------------------------------- when it is loaded */

/* The threads of the process that was forked are not in the new one. */
static void begin_anew(void) {
  pthread_mutex_t fresh = PTHREAD_MUTEX_INITIALIZER;
  in_use = fresh, started = 0;
  atomic_store(&regions.sleepers, 0);
  atomic_store(&left.sleepers, 0);
  atomic_store(&untaken, 0);
}

static long environment(const char *name, long usual) {
  const char *text = getenv(name);
  char *end = NULL;
  long value = text ? strtol(text, &end, 10) : 0;
  return end == text || value < 0 ? usual : value;
}

static long processors(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
}

/* Much as OpenMP's library reads them; codegen_c/openmp.py sets those that are not set. */
__attribute__((constructor)) static void begin(void) {
  const char *policy = getenv("OMP_WAIT_POLICY");
  bool passive = policy && !strcasecmp(policy, "passive"), active = policy && !strcasecmp(policy, "active");
  spins = environment("GOMP_SPINCOUNT", passive ? 0 : active ? 3000000 : 300000);
  long threads = environment("OMP_NUM_THREADS", 0);
  if (!threads) threads = processors();
  usual_threads = threads < 1 ? 1 : threads < MOST_THREADS ? (uint32_t)threads : MOST_THREADS;
  pthread_atfork(NULL, NULL, begin_anew);
}
