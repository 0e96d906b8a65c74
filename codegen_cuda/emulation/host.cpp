// Runs the kernels of one job, a library of emitted CUDA compiled for this machine, and reports what they do wrong.
//
//   host JOB    JOB is a text file, one item a line:
//     library PATH                               shared objects of the kernels
//     shared NAME OFFSET BYTES ALIGNMENT GRANULE  a shared array, at OFFSET of the thread-local block
//                                                (the last one is the dynamic shared memory, at its largest)
//     buffer NAME PATH BYTES GRANULE READY       a file that is an argument's memory
//     value HEX                                  an argument passed by value
//     launch NAME gx gy gz bx by bz BYTES ARG... BYTES of dynamic shared memory; ARG: b<index> or v<index>
//
// Answers on standard output: "finding" and "error" lines, and "done" with the number of accesses at the end.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>
#include <thread>

#include "copy_engine.h"

// ---------------------------------------------------------------- what kernels call

extern "C" {
unsigned emu_thread(int axis) { return here.at_thread.v[axis]; }
unsigned emu_block(int axis) { return here.at_block.v[axis]; }
unsigned emu_block_dim(int axis) { return here.block.v[axis]; }
unsigned emu_grid_dim(int axis) { return here.grid.v[axis]; }

void emu_barrier(int line) {
  if (blocks > 1) return meet_at(line, 0, 0, true);
  Fiber &f = fibers[here.thread];
  f.state = AT_BARRIER, f.line = line;
  back_to_scheduler(f);
}

uint64_t emu_warp(int op, int line, unsigned mask, uint64_t value, int operand, int width) {
  Fiber &f = fibers[here.thread];
  f.state = AT_WARP, f.line = line, f.op = (WarpOp)op, f.mask = mask;
  f.value = value, f.operand = operand, f.width = width;
  if (!(mask >> (here.thread & 31) & 1)) {
    report("divergence", 0, 0, line, "takes part in a warp operation whose mask %#x does not name it", mask);
    stop();
  }
  meet(here.thread >> 5);
  if (f.state != READY) back_to_scheduler(f);
  return f.result;
}

void emu_atomic(void *p, size_t bytes) { access((uintptr_t)p, bytes, true, ATOMIC, CALLER); }

void emu_together(int op, int line, void *lane) { emu_warp(op, line, 0xffffffffu, (uint64_t)lane, 0, 32); }

uintptr_t emu_shared_start() { return shared_start; }

void emu_copy_async(void *to, const void *from, size_t bytes, size_t read, int checked) {
  if (checked) {
    if (read) access((uintptr_t)from, read, false, 0, CALLER);
    access((uintptr_t)to, bytes, true, IN_FLIGHT, CALLER);
  }
  Copy copy{to, bytes, groups[here.thread], {}};
  memcpy(copy.data, from, read);
  copies[here.thread].push_back(copy);
}

void emu_copy_commit() { ++groups[here.thread]; }

void emu_copy_wait(unsigned left, int checked) {  // for all groups but the last `left` ones
  std::vector<Copy> &mine = copies[here.thread];
  auto c = mine.begin();
  for (; c != mine.end() && c->group + left < groups[here.thread]; ++c) {
    if (checked) arrive((uintptr_t)c->to, c->bytes);
    memcpy(c->to, c->data, c->bytes);
  }
  mine.erase(mine.begin(), c);
}

void emu_product_begin(
    int line, void (*run)(void *), const void *data, size_t bytes, uint32_t *const *sums, size_t count) {
  if (!registers_fenced[here.thread]) wrong("race", line, "begins its first product without wgmma.fence");
  std::vector<Product> &mine = products[here.thread];
  static unsigned known[1024];  // the version of what the last product knew
  Product product{run, product_groups[here.thread], nullptr, nullptr, {}};
  if (in_parts) {
    const bool same = !mine.empty() && known[here.thread] == versions[here.thread];
    product.known = same ? mine.back().known : std::make_shared<const Knowledge>(knows_now(here.thread));
    known[here.thread] = versions[here.thread];
  }
  memcpy(product.data, data, bytes);
  const std::vector<uint32_t *> places(sums, sums + count);
  const bool alike = !mine.empty() && *mine.back().sums == places;
  product.sums = alike ? mine.back().sums : std::make_shared<const std::vector<uint32_t *>>(places);
  if (!alike) hold(here.thread, product);
  mine.push_back(product);
}

void emu_product_fence() { registers_fenced[here.thread] = true; }

void emu_product_commit() { ++product_groups[here.thread]; }

// Tensor cores read shared memory as late as they may, for all warps of a group before one of them goes on.
void emu_product_wait(unsigned left, int line) {
  std::vector<Product> &mine = products[here.thread];
  if (mine.empty() || mine[0].group + left >= product_groups[here.thread]) return;
  const unsigned me = here.thread;
  size_t count = 0;
  meet_group(line);
  give_back(me);
  for (; count < mine.size() && mine[count].group + left < product_groups[here.thread]; ++count) {
    Product product = mine[count];  // on the stack of the thread, whose own accesses are not watched
    judged[me] = product.known.get();
    product.run(product.data);
    judged[me] = nullptr;
  }
  mine.erase(mine.begin(), mine.begin() + count);
  for (size_t i = 0; i < mine.size(); ++i)
    if (i == 0 || mine[i].sums != mine[i - 1].sums) hold(me, mine[i]);
  meet_group(line);
  if (in_parts) knowledge[me].plain[TENSOR + (me >> 5)] = ++now, ++versions[me];
}

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
#define HOOKS(size)                                                                                    \
  void __tsan_read##size(void *p) { access((uintptr_t)p, size, false, 0, CALLER); }                \
  void __tsan_write##size(void *p) { access((uintptr_t)p, size, true, 0, CALLER); }                \
  void __tsan_unaligned_read##size(void *p) { access((uintptr_t)p, size, false, 0, CALLER); }      \
  void __tsan_unaligned_write##size(void *p) { access((uintptr_t)p, size, true, 0, CALLER); }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *p, size_t n) {  // a struct of a size that has no hook: byte by byte
  for (size_t i = 0; i < n; ++i) access((uintptr_t)p + i, 1, false, 0, CALLER);
}
void __tsan_write_range(void *p, size_t n) {
  for (size_t i = 0; i < n; ++i) access((uintptr_t)p + i, 1, true, 0, CALLER);
}

struct Location { const char *file; uint32_t line, column; };
struct Type { uint16_t kind, info; char name[1]; };
struct OutOfBounds { Location where; Type *array, *index; };
struct Mismatch { Location where; Type *type; unsigned char log_alignment, kind; };

void __ubsan_handle_out_of_bounds(OutOfBounds *data, uintptr_t index) {
  report("out of bounds", 0, 0, (int)data->where.line, "indexes an array of type %s with %ld", data->array->name,
         data->index->info >> 1 == 5 && data->index->info & 1 ? (long)(int)index : (long)index);
  stop();
}
void __ubsan_handle_type_mismatch_v1(Mismatch *data, uintptr_t a) {
  misaligned(a, (size_t)1 << data->log_alignment, 0, (int)data->where.line);
}
void __ubsan_handle_divrem_overflow(Location *where, uintptr_t, uintptr_t) {
  report("division", 0, 0, (int)where->line, "divides an integer by zero");
  stop();
}
}

// ---------------------------------------------------------------- signals

static void on_signal(int number, siginfo_t *info, void *context) {
  uintptr_t pc = 0;
#if defined(__x86_64__)
  pc = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#elif defined(__aarch64__)
  pc = (uintptr_t)((ucontext_t *)context)->uc_mcontext.pc;
#endif
  if (number == SIGFPE) report("division", pc, 0, 0, "divides an integer by zero");
  else report("crash", pc, 0, 0, "%s at address %p", strsignal(number), info->si_addr);
  stop();
}

static void have_stack_for_signals() {
  static thread_local char stack[1 << 16];
  stack_t alternate{};
  alternate.ss_sp = stack, alternate.ss_size = sizeof stack;
  sigaltstack(&alternate, nullptr);
}

static void catch_signals() {
  have_stack_for_signals();
  struct sigaction action{};
  action.sa_sigaction = on_signal, action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  for (int s : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) sigaction(s, &action, nullptr);
}

// ---------------------------------------------------------------- the job

struct Launch {
  std::string kernel;
  Dim grid, block;
  size_t dynamic_bytes;
  std::vector<std::string> arguments;
};

static void *library;
struct alignas(64) Value { unsigned char bytes[MAP_BYTES]; };
static std::vector<Value> values;
static std::vector<Launch> launches;
static std::vector<Region> declared;  // shared arrays, which begin at offsets here

static int find_module(dl_phdr_info *info, size_t, void *symbol) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) &p = info->dlpi_phdr[i];
    const uintptr_t start = info->dlpi_addr + p.p_vaddr;
    if (p.p_type == PT_LOAD && (uintptr_t)symbol - start < p.p_memsz) module_base = info->dlpi_addr;
  }
  for (int i = 0; i < info->dlpi_phnum && module_base == info->dlpi_addr; ++i) {
    const ElfW(Phdr) &p = info->dlpi_phdr[i];
    if (p.p_type == PT_LOAD) module_end = info->dlpi_addr + p.p_vaddr + p.p_memsz;
  }
  return module_base != 0;
}

static int log2_of(size_t x) { return x <= 1 ? 0 : 1 + log2_of(x / 2); }

static void read_buffer(std::istringstream &line) {
  std::string name, path;
  size_t bytes, granule;
  bool ready;
  line >> name >> path >> bytes >> granule >> ready;
  const uintptr_t start = SLOTS + ((uintptr_t)buffers.size() << SLOT_SHIFT) + IN_SLOT;
  const int file = open(path.c_str(), O_RDWR);
  const int flags = MAP_SHARED | MAP_FIXED_NOREPLACE;
  void *p = bytes ? mmap((void *)start, bytes, PROT_READ | PROT_WRITE, flags, file, 0) : nullptr;
  if (file < 0 || p == MAP_FAILED) refuse("the memory of %s cannot be mapped: %s", name.c_str(), strerror(errno));
  close(file);
  const int shift = log2_of(granule);
  buffers.push_back({name, start, bytes, shift, 16, false, ready, new_cells(bytes, shift), nullptr, 0});
}

static void read_job(const char *path) {
  std::ifstream file(path);
  for (std::string text, word; std::getline(file, text);) {
    std::istringstream line(text);
    line >> word;
    if (word == "library") {
      line >> word;
      library = dlopen(word.c_str(), RTLD_NOW);
      if (library == nullptr) refuse("%s", dlerror());
      std::ifstream text(word, std::ios::binary);
      const std::string names((std::istreambuf_iterator<char>(text)), {});
      engines = names.find("emu_product_begin") != std::string::npos;
    } else if (word == "shared") {
      Region r{};
      size_t granule;
      line >> r.name >> r.start >> r.bytes >> r.alignment >> granule;
      r.shift = log2_of(granule), r.shared = true;
      declared.push_back(r);
    } else if (word == "buffer") {
      read_buffer(line);
    } else if (word == "value") {
      Value v{};
      line >> word;  // its digits, highest first
      for (size_t i = 0; i < word.size() && i < 2 * MAP_BYTES; ++i)
        v.bytes[i / 2] |= (unsigned char)(std::stoi(word.substr(word.size() - 1 - i, 1), nullptr, 16) << 4 * (i % 2));
      values.push_back(v);
    } else if (word == "launch") {
      Launch l;
      line >> l.kernel;
      for (Dim *d : {&l.grid, &l.block}) line >> d->v[0] >> d->v[1] >> d->v[2];
      line >> l.dynamic_bytes;
      while (line >> word) l.arguments.push_back(word);
      launches.push_back(l);
    }
  }
}

// The shared arrays of the block of this rank of a cluster are those of this thread.
static void place_shared_arrays(unsigned rank) {
  const uintptr_t base = (uintptr_t)dlsym(library, "emu_dynamic_shared") - declared.back().start;
  Window &window = windows[rank] = {UINTPTR_MAX, 0};
  for (Region r : declared) {
    r.start += base, r.rank = rank;
    if (rank) r.name += " of block " + std::to_string(rank);
    r.cells = new_cells(r.bytes, r.shift);
    r.reads = shadow<LastRead>(r.bytes, r.shift, MOST_READERS);
    window.start = std::min(window.start, r.start);
    window.end = std::max(window.end, r.start + std::max<size_t>(r.bytes, 32768));
    shared_arrays.push_back(r);
  }
  window.start &= ~(uintptr_t)65535;
}

// One of them runs at a time, so they share a core: another one would have to wake up at every turn.
static void stay_on_this_core() {
  cpu_set_t own;
  CPU_ZERO(&own);
  CPU_SET(sched_getcpu(), &own);
  sched_setaffinity(0, sizeof(own), &own);
}

static void have_threads_for(unsigned ranks) {
  static unsigned have = 1;
  if (have == 1 && ranks > 1) stay_on_this_core();
  for (; have < ranks; ++have) {
    sem_init(&turn[have], 0, 0);
    std::thread([rank = have] {
      have_stack_for_signals();
      place_shared_arrays(rank);
      run_fibers_of(rank);
    }).detach();
    while (sem_wait(&turn_is_over)) {}
  }
}

// How many blocks run together.
static void begin_clusters(const Launch &l) {
  const unsigned blocks_before = blocks, threads_before = block_threads;
  block_threads = l.block.v[0] * l.block.v[1] * l.block.v[2];
  const int given = ((int (*)())dlsym(library, ("emu_cluster_" + l.kernel).c_str()))();
  const unsigned along = l.grid.v[given < 0];
  blocks = (unsigned)abs(given);
  next_block = given < 0 ? l.grid.v[0] : 1;
  threads = blocks * block_threads;
  if (along % blocks)
    refuse("kernel %s has clusters of %u blocks, and a grid of %u, which is no multiple of that", l.kernel.c_str(),
           blocks, along);
  if (blocks > 1 && (block_threads % GROUP_THREADS || threads > 1024))
    refuse("kernel %s has clusters of %u blocks of %u threads; the emulator knows those of multiples of %d, 1024 in "
           "all", l.kernel.c_str(), blocks, block_threads, (int)GROUP_THREADS);
  have_threads_for(blocks);
  const bool alike = blocks == blocks_before && (blocks == 1 || block_threads == threads_before);
  for (Fiber &f : fibers) f.made &= alike;  // a fiber stays on its thread of the host
}

static std::vector<void *> bind_arguments(const Launch &l, std::vector<Value> &storage) {
  const char *name = l.kernel.c_str();
  const auto codes_of = (const int *(*)())dlsym(library, ("emu_parameters_" + l.kernel).c_str());
  const int *codes = codes_of();
  if ((size_t)codes[0] != l.arguments.size())
    refuse("kernel %s takes %d arguments, got %zu", name, codes[0], l.arguments.size());
  for (size_t i = 0; i < l.arguments.size(); ++i) {
    const bool buffer = l.arguments[i][0] == 'b';
    const size_t k = std::stoul(l.arguments[i].substr(1));
    if (buffer != (codes[i + 1] > 0))
      refuse("argument %zu of kernel %s is %s", i, name, buffer ? "a value, got an array" : "a pointer, got a number");
    if (buffer && codes[i + 1] % (1 << buffers[k].shift))
      refuse("argument %zu of kernel %s points to elements of %d bytes, got an array of elements of %d", i, name,
             codes[i + 1], 1 << buffers[k].shift);
    storage.push_back(buffer ? Value{} : values[k]);
    if (buffer) memcpy(&storage.back(), &buffers[k].start, sizeof buffers[k].start);
    if (codes[i + 1] == -(int)MAP_BYTES) check_map(*(const TensorMap *)&values[k], i);
  }
  std::vector<void *> pointers;
  for (Value &s : storage) pointers.push_back(&s);
  return pointers;
}

static void run_launch(const Launch &l) {
  std::vector<Value> storage;
  std::vector<void *> pointers = bind_arguments(l, storage);
  entry = (void (*)(void **))dlsym(library, ("emu_enter_" + l.kernel).c_str());
  arguments = pointers.data();
  begin_clusters(l);
  for (size_t i = declared.size(); i <= shared_arrays.size(); i += declared.size())
    shared_arrays[i - 1].bytes = l.dynamic_bytes;
  here.kernel = l.kernel.c_str(), here.grid = l.grid, here.block = l.block;
  launch_start = ++now;
  const unsigned count = l.grid.v[0] * l.grid.v[1] * l.grid.v[2];
  for (here.first_block = 0; here.first_block < count; ++here.first_block)
    if (here.first_block / next_block % blocks == 0) run_blocks();
}

void stop() {
  printf("done\t%lu\n", (unsigned long)accesses);
  fflush(stdout);
  _exit(0);
}

int main(int, char **argv) {
  read_job(argv[1]);
  if (library == nullptr) refuse("the job names no library");
  watched = *(const int *)dlsym(library, "emu_checked") != 0;
  dl_iterate_phdr(find_module, dlsym(library, ("emu_enter_" + launches.at(0).kernel).c_str()));
  sem_init(&turn_is_over, 0, 0);
  place_shared_arrays(0);
  reserve_stacks();
  catch_signals();
  for (const Launch &l : launches) run_launch(l);
  stop();
}
