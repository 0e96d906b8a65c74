// The copy engine of Hopper: boxes of tensors to shared memory and back, by maps that emulated_maps.py makes.
//
// It is as late as it may be.  What it loads arrives when a thread waits for nothing else; until then its place is full
// of NaN, and reading it is reported.  What it stores is read when its thread waits for that.
#pragma once
#include <memory>

#include "barriers.h"

struct TensorMap {  // as emulated_maps.py writes it, in place of a CUtensorMap
  uint32_t magic, buffer;
  uint64_t offset;
  uint8_t bytes, rank, swizzle, fill;
  uint32_t extent[5];
  uint64_t stride[4];  // in bytes, of all axes but the innermost one
  uint16_t box[5];
  uint8_t step[5], rounds;  // 1: floats to TF32
  uint8_t far[2], near[2];  // before the last pixel of an image the last window begins, and the first before the first
  uint8_t windows;          // 1: of windows, as many as the box is long along the outermost axis (im2col)
};
inline const uint32_t MAGIC = 0x50414d54;
inline const size_t MAP_BYTES = 128;

inline unsigned span_of(const TensorMap &m) { return m.swizzle ? 16u << m.swizzle : 0; }
inline unsigned count_of(const TensorMap &m, int axis) {
  return axis >= m.rank ? 1 : axis == 0 ? m.box[0] : (m.box[axis] + m.step[axis] - 1) / m.step[axis];
}

// What cuTensorMapEncodeTiled would refuse.
inline void check_map(const TensorMap &m, size_t argument) {
  const auto law = [argument](bool holds, const char *text) {
    if (!holds) refuse("argument %zu, a tensor map: %s", argument, text);
  };
  law(m.magic == MAGIC, "it was not made for the emulator");
  law(m.buffer < buffers.size(), "its array is none of the arguments");
  law(m.rank >= 1 && m.rank <= 5, "its rank must be 1 to 5");
  law(m.offset % 16 == 0, "its address must be a multiple of 16");
  law(m.swizzle <= 3 && m.fill == 0, "it must be swizzled over 0, 32, 64 or 128 bytes, and filled with zeros");
  const size_t row = (size_t)m.box[0] * m.bytes;
  law(row % 16 == 0, "the rows of a box must be multiples of 16 bytes");
  law(!m.swizzle || row <= span_of(m), "the rows of a box must not be longer than its swizzle");
  law(!m.swizzle || row == span_of(m), "the emulator knows swizzled boxes only whose rows are as long as the swizzle");
  size_t end = m.offset + (size_t)m.extent[0] * m.bytes;
  for (int k = 0; k < m.rank; ++k) {
    law(m.extent[k] >= 1, "extents must be 1 or more");
    law(m.box[k] >= 1 && m.box[k] <= 256, "a box must have 1 to 256 elements along each axis");
    law(m.step[k] >= 1 && m.step[k] <= 8, "strides between elements must be 1 to 8");
    if (k == 0) continue;
    const bool even = m.stride[k - 1] % 16 == 0 && m.stride[k - 1] < (uint64_t)1 << 40;
    law(even, "strides must be multiples of 16 bytes below 2^40");
    end += (m.extent[k] - 1) * m.stride[k - 1];
  }
  law(end <= buffers[m.buffer].bytes, "it must not reach beyond its array");
  for (int k = 0; m.windows && k < m.rank; ++k) {
    law(m.rank == 4, "of windows its rank must be 4");
    const bool outer = k == 0 || k == m.rank - 1;
    law(outer ? m.step[k] == 1 : m.box[k] == 1, "windows are counted along the inner axes, and one by one elsewhere");
    if (outer) continue;
    law(m.near[k - 1] <= 128 && m.far[k - 1] <= 128, "windows must begin at most 128 before an edge of an image");
    law(m.far[k - 1] < m.extent[k] + m.near[k - 1], "there must be a window");
  }
}

// A part of a copy: so many bytes in a row of both memories; `from` or `to` is 0 outside of the tensor.
struct Piece { uintptr_t global, shared; size_t bytes; };

struct Transfer {
  std::vector<Piece> pieces;  // in memory of the device
  uintptr_t shared;
  size_t bytes;
  unsigned thread;
  uintptr_t pc;
  uint32_t time;   // of a store: when it was asked for
  unsigned group;  // of a store
  bool read, rounds;
  std::vector<char> data;
};

inline std::vector<std::shared_ptr<Transfer>> stores[1024];  // that a thread has not waited for
inline unsigned store_groups[1024];                          // that a thread has committed

inline uintptr_t swizzled(uintptr_t a, unsigned swizzle) {
  const uintptr_t place = a - shared_start, bits = place >> 7 & ((1u << swizzle) - 1);
  return shared_start + (place ^ bits << 4);
}

// The part of a line of a box that is inside of the tensor, cut at multiples of 16 bytes of the box.
inline void add_line(std::vector<Piece> &pieces, const TensorMap &m, int start, uintptr_t global, uintptr_t place) {
  const int64_t first = std::max(start, 0), last = std::min<int64_t>((int64_t)start + m.box[0], m.extent[0]);
  for (int64_t x = first * m.bytes; x < last * m.bytes;) {
    const int64_t in_box = x - (int64_t)start * m.bytes;
    const int64_t size = std::min<int64_t>(16 - in_box % 16, last * m.bytes - x);
    pieces.push_back({global + (uintptr_t)x, swizzled(place + (uintptr_t)in_box, m.swizzle), (size_t)size});
    x += size;
  }
}

inline std::vector<Piece> pieces_of(const TensorMap &m, const int *at, uintptr_t shared) {
  std::vector<Piece> pieces;
  unsigned rows = 1;
  for (int k = 1; k < m.rank; ++k) rows *= count_of(m, k);
  for (unsigned row = 0; row < rows; ++row) {
    bool inside = true;
    uintptr_t global = buffers[m.buffer].start + m.offset;
    unsigned rest = row;
    for (int k = 1; k < m.rank; ++k) {
      const int64_t x = (int64_t)at[k] + (int64_t)(rest % count_of(m, k)) * m.step[k];
      rest /= count_of(m, k);
      inside &= x >= 0 && x < m.extent[k];
      global += (uintptr_t)(x * (int64_t)m.stride[k - 1]);
    }
    if (inside) add_line(pieces, m, at[0], global, shared + (size_t)row * m.box[0] * m.bytes);
  }
  return pieces;
}

// Pixels of windows, of which `at` is the first one: through a line of them, an image, and all images; `further` is
// the place in each window.
inline std::vector<Piece> pixels_of(const TensorMap &m, const int *at, const int *further, uintptr_t shared, int line) {
  std::vector<Piece> pieces;
  std::vector<int64_t> x(at, at + m.rank);
  for (int k = 1; k + 1 < m.rank; ++k) {
    const int64_t first = -(int64_t)m.near[k - 1], last = (int64_t)m.extent[k] - 1 - m.far[k - 1];
    if (x[k] < first || x[k] > last || (x[k] - first) % m.step[k])
      wrong("copy", line, "copies windows from %d on along axis %d, where none begins", at[k], m.rank - 1 - k);
    if (further[k - 1] < 0 || further[k - 1] > 255)
      wrong("copy", line, "copies the place %d in windows, which must be 0 to 255", further[k - 1]);
  }
  for (unsigned row = 0; row < m.box[m.rank - 1]; ++row) {
    bool inside = true;
    uintptr_t global = buffers[m.buffer].start + m.offset;
    for (int k = 1; k < m.rank; ++k) {
      const int64_t place = x[k] + (k + 1 < m.rank ? further[k - 1] : 0);
      inside &= place >= 0 && place < m.extent[k];
      global += (uintptr_t)(place * (int64_t)m.stride[k - 1]);
    }
    if (inside) add_line(pieces, m, at[0], global, shared + (size_t)row * m.box[0] * m.bytes);
    int k = 1;
    for (x[1] += m.step[1]; k + 1 < m.rank && x[k] > (int64_t)m.extent[k] - 1 - m.far[k - 1]; ++k)
      x[k] = -(int64_t)m.near[k - 1], x[k + 1] += m.step[k + 1];
  }
  return pieces;
}

inline const TensorMap &map_at(const void *map, int rank, int line, bool windows = false) {
  const TensorMap &m = *(const TensorMap *)map;
  if (m.magic != MAGIC) wrong("copy", line, "copies by a tensor map that is none");
  if (m.windows != windows) wrong("copy", line, "copies %s by a map of %s", windows ? "windows" : "a box",
                                  windows ? "boxes" : "windows");
  if (m.rank != rank) wrong("copy", line, "copies a box of rank %d by a map of rank %d", rank, m.rank);
  return m;
}

inline Transfer transfer(const std::vector<Piece> &p, uintptr_t shared, size_t bytes, uintptr_t pc, bool rounds = 0) {
  return {p, shared, bytes, here.thread, pc, 0, 0, false, rounds, {}};
}

inline size_t box_bytes(const TensorMap &m) {
  size_t bytes = m.bytes;
  for (int k = 0; k < m.rank; ++k) bytes *= count_of(m, k);
  return bytes;
}

// To the nearest TF32 number, ties to even; infinities stay as they are, and NaN is one NaN, as on an H200.
inline void round_floats(uint32_t *x, size_t count) {
  for (; count--; ++x)
    if (~*x & 0x7f800000) *x = (*x + 0xfff + (*x >> 13 & 1)) & ~0x1fffu;
    else if (*x & 0x7fffff) *x = 0x7fffe000;
}

inline void load(int line, Transfer job, void *at, unsigned alignment) {
  Mbarrier &b = mbarrier(at, line);
  if (!b.fenced)
    wrong("barrier", line, "gives the copy engine the barrier at %s without fence.mbarrier_init behind its "
          "initialisation", place_name(b.at).c_str());
  Region &r = shared_place(job.shared, job.bytes, alignment, line);
  const size_t first = (job.shared - r.start) >> r.shift, end = (job.shared - r.start + job.bytes) >> r.shift;
  for (size_t i = first; watched && i < end; ++i) {
    judge_fence(r, r.cells[i], i << r.shift, knowledge[job.thread], "overwrite", job.pc);
    write_cell(r, i, (uint16_t)job.thread, IN_FLIGHT, job.pc);
  }
  memset((void *)job.shared, 0xff, job.bytes);
  b.on_the_way += job.bytes;
  const unsigned slot = b.slot;
  b.copies.push_back([job, slot, first, end, &r] {
    memset((void *)job.shared, 0, job.bytes);
    for (const Piece &p : job.pieces) {
      touch(p.global, p.bytes, false, job.thread, job.pc);
      memcpy((void *)p.shared, (const void *)p.global, p.bytes);
      if (job.rounds) round_floats((uint32_t *)p.shared, p.bytes / 4);
    }
    for (size_t i = first; i < end; ++i) r.cells[i].write_time = now, r.cells[i].writer = (uint16_t)(COPIED + slot);
  });
}

// The same to shared memory of all blocks of a cluster in `mask`, and the bytes count at a barrier of each.
inline void multicast(int line, const Transfer &job, void *at, unsigned alignment, unsigned mask) {
  if (mask == 0 || mask >> blocks) wrong("copy", line, "copies to blocks %#x of a cluster of %u", mask, blocks);
  for (unsigned rank = 0; rank < blocks; ++rank) {
    if (!(mask >> rank & 1)) continue;
    must_run(rank, line, "copies to");
    const uintptr_t further = windows[rank].start - shared_start;
    Transfer there = job;
    there.shared += further;
    for (Piece &p : there.pieces) p.shared += further;
    load(line, there, (char *)at + further, alignment);
  }
}

inline void store(int line, Transfer job, unsigned alignment) {
  Region &r = shared_place(job.shared, job.bytes, alignment, line);
  const unsigned t = job.thread;
  meet_in_parts();
  judged[t] = &knows_now(t);
  for (const Piece &p : job.pieces)  // what lies beyond the edge of the tensor may be anything
    for (size_t i = (p.shared - r.start) >> r.shift; watched && i < (p.shared - r.start + p.bytes) >> r.shift; ++i)
      judge_read(r, r.cells[i], i << r.shift, (uint16_t)t, job.pc);
  judged[t] = nullptr;
  job.time = ++now, job.group = store_groups[t];
  stores[t].push_back(std::make_shared<Transfer>(job));
}

inline void read_store(Transfer &s) {
  if (s.read) return;
  s.read = true;
  Region &r = *region_of(s.shared);
  for (size_t i = (s.shared - r.start) >> r.shift; watched && i < (s.shared - r.start + s.bytes) >> r.shift; ++i) {
    const Cell &c = r.cells[i];
    if (c.write_time >= s.time)
      report("race", c.write_pc + module_base, offset_of(s.pc), 0, "has byte %zu of %s stored by the copy engine, and "
             "%s writes it before wait_group.read", i << r.shift, r.name.c_str(), accessor(c, true).c_str());
    note(r.reads + i * readers(), s.thread);
  }
  for (const Piece &p : s.pieces) s.data.insert(s.data.end(), (char *)p.shared, (char *)p.shared + p.bytes);
}

inline void write_store(const Transfer &s) {
  const char *data = s.data.data();
  for (const Piece &p : s.pieces) {
    touch(p.global, p.bytes, true, s.thread, s.pc);
    memcpy((void *)p.global, data, p.bytes);
    data += p.bytes;
  }
}

inline void wait_for_stores(unsigned t, unsigned left, bool read_only) {
  auto &mine = stores[t];
  auto s = mine.begin();
  for (; s != mine.end() && (*s)->group + left < store_groups[t]; ++s) {
    read_store(**s);
    if (!read_only) write_store(**s);
  }
  if (!read_only) mine.erase(mine.begin(), s);
}

// What must not be left over when a block ends.
inline void end_copies() {
  for (unsigned t = 0; t < threads; ++t) {
    stand_at(t);
    for (auto &s : stores[t]) {
      if (!s->read)
        report("copy", s->pc, 0, 0, "ends while the copy engine has not read what it stores of %s: wait_group.read is "
               "missing", place_name(s->shared).c_str());
      read_store(*s), write_store(*s);
    }
    stores[t].clear(), store_groups[t] = 0;
  }
  for (const Mbarrier &b : mbarriers)
    if (b.on_the_way)
      report("copy", 0, 0, 0, "ends while %zu bytes are on their way, for which nobody waited at the barrier at %s",
             b.on_the_way, place_name(b.at).c_str());
  judge_ends();
  forget_barriers();
}

// Copies without a map, of rows whose addresses and sizes are multiples of 16.
inline Transfer row_of(uintptr_t global, uintptr_t shared, unsigned bytes, uintptr_t pc, int line) {
  if (global % 16 || bytes % 16)
    wrong("misaligned", line, "copies %u bytes at %s: both must be multiples of 16", bytes, place_name(global).c_str());
  const Region *r = region_of(global);
  if (r == nullptr || r->shared || global - r->start > r->bytes || bytes > r->bytes - (global - r->start))
    wrong("out of bounds", line, "copies %u bytes at %s", bytes, place_name(global).c_str());
  return transfer({{global, shared, bytes}}, shared, bytes, pc);
}

extern "C" {
const void *emu_in_cluster(int line, unsigned place, unsigned bytes) {
  return (const void *)reach(place, bytes, line, "reads memory of");
}
void emu_box_load(int line, const void *map, const int *at, int rank, void *to, void *barrier) {
  const TensorMap &m = map_at(map, rank, line);
  load(line, transfer(pieces_of(m, at, (uintptr_t)to), (uintptr_t)to, box_bytes(m), CALLER, m.rounds), barrier, 128);
}
void emu_pixels_load(int line, const void *map, const int *at, int rank, void *to, void *barrier, const int *further) {
  const TensorMap &m = map_at(map, rank, line, true);
  const std::vector<Piece> pieces = pixels_of(m, at, further, (uintptr_t)to, line);
  load(line, transfer(pieces, (uintptr_t)to, box_bytes(m), CALLER, m.rounds), barrier, 128);
}
void emu_box_multicast(int line, const void *map, const int *at, int rank, void *to, void *barrier, unsigned mask) {
  const TensorMap &m = map_at(map, rank, line);
  const Transfer job = transfer(pieces_of(m, at, (uintptr_t)to), (uintptr_t)to, box_bytes(m), CALLER, m.rounds);
  multicast(line, job, barrier, 128, mask);
}
// Boxes are loaded from before a tensor, as they are from behind it; of a store an H200 makes an illegal instruction.
void emu_box_store(int line, const void *map, const int *at, int rank, void *from) {
  const TensorMap &m = map_at(map, rank, line);
  for (int k = 0; k < rank; ++k)
    if (at[k] < 0) wrong("out of bounds", line, "stores a box that begins before its tensor, at %d", at[k]);
  store(line, transfer(pieces_of(m, at, (uintptr_t)from), (uintptr_t)from, box_bytes(m), CALLER), 128);
}
void emu_row_load(int line, void *to, const void *from, unsigned bytes, void *barrier) {
  load(line, row_of((uintptr_t)from, (uintptr_t)to, bytes, CALLER, line), barrier, 16);
}
void emu_row_multicast(int line, void *to, const void *from, unsigned bytes, void *barrier, unsigned mask) {
  multicast(line, row_of((uintptr_t)from, (uintptr_t)to, bytes, CALLER, line), barrier, 16, mask);
}
void emu_row_store(int line, void *to, const void *from, unsigned bytes) {
  store(line, row_of((uintptr_t)to, (uintptr_t)from, bytes, CALLER, line), 16);
}
void emu_stores_commit() { ++store_groups[here.thread]; }
void emu_stores_wait(unsigned left, int read_only) { wait_for_stores(here.thread, left, read_only != 0); }
}
