"""Copies into pipelined shared tiles that do not wait for their data (`cp.async`, from sm_80 on).

A store to a pipelined buffer is asynchronous when it only moves 4, 8 or 16 neighbouring bytes of global memory, each
at a multiple of its size, or writes zeros instead under a condition (padding): the hardware then reads 0 bytes and
fills the rest with zeros.

    copy_async<16>(tile + i, A + j)             copy_async<4>(&tile[i], &A[j], in the image)
    copy_async_wait(); __syncthreads();         a thread's copies are complete, then everybody's are
    copy_async_wait_all_but<1>();               so are those but for the last group; either closes a group

Everything else (single halves and bytes, arithmetic, padding by other values) is stored as usual, as all copies are
on older devices; the barrier that publishes a tile covers both.
"""

from __future__ import annotations

from math import copysign

from codegen_cuda.program.indices import vector_start
from codegen_cuda.text.vectors import VectorStore, Writer
from te_lite.expr.dtype import BYTES
from te_lite.expr.expr import BufferLoad, Call, Const, Expr, Select, logical_and
from te_lite.expr.visit import free_vars
from te_lite.loops.stmt import For, Store

SIZES = (16, 8, 4)
WAIT = "copy_async_wait();"
HELPERS = """\
#ifndef EMU_ASYNC  // the block emulator has its own
template <int bytes> static __device__ __forceinline__ void copy_async(void *to, const void *from, bool real) {
#if __CUDA_ARCH__ >= 800
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  const int size = real ? bytes : 0;
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(size) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 ::"r"(place), "l"(from), "n"(bytes), "r"(size) : "memory");
#else
  if constexpr (bytes == 16) *(int4 *)to = real ? *(const int4 *)from : make_int4(0, 0, 0, 0);
  else if constexpr (bytes == 8) *(int2 *)to = real ? *(const int2 *)from : make_int2(0, 0);
  else *(int *)to = real ? *(const int *)from : 0;
#endif
}
template <int bytes> static __device__ __forceinline__ void copy_async(void *to, const void *from) {
#if __CUDA_ARCH__ >= 800
  const unsigned place = (unsigned)__cvta_generic_to_shared(to);
  if constexpr (bytes == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(from), "n"(bytes) : "memory");
#else
  copy_async<bytes>(to, from, true);
#endif
}
static __device__ __forceinline__ void copy_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\\n\\tcp.async.wait_group 0;" ::: "memory");
#endif
}
#endif
"""

GROUPS = """\
#ifndef EMU_ASYNC
template <int groups> static __device__ __forceinline__ void copy_async_wait_all_but() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;\\n\\tcp.async.wait_group %0;" ::"n"(groups) : "memory");
#endif
}
#endif
"""


def wait(helpers: dict[str, str], left: int) -> str:
    """What ends a group of copies and waits for all groups of this thread but the last `left` ones."""
    helpers["copy_async"] = HELPERS
    if left == 0:
        return WAIT
    helpers["copy_async_groups"] = GROUPS
    return f"copy_async_wait_all_but<{left}>();"


def moved(e: Expr) -> tuple[BufferLoad, Expr | None] | None:
    """The read of global memory that `e` is, and the condition outside of which it is zero; None for other values."""
    match e:
        case BufferLoad(buffer=buffer) if buffer.scope == "global":
            return e, None
        case Call(func="if_then_else", args=(cond, a, Const() as b)) | Select(cond=cond, a=a, b=Const() as b):
            inner = moved(a)
            if inner is None or b.value != 0 or copysign(1, b.value) < 0:
                return None
            return inner[0], cond if inner[1] is None else logical_and(cond, inner[1])
    return None


def scalar_copy(writer: Writer, store: Store) -> str | None:
    """A store of one element as an asynchronous copy; None when it is none."""
    found = moved(store.value) if store.buffer.pipelined else None
    size = BYTES[store.buffer.dtype]
    if found is None or size not in SIZES:
        return None
    load, cond = found
    to, source = writer.place(store.buffer, store.index), writer.place(load.buffer, load.index)
    return _call(writer, size, f"&{to}", f"&{source}", cond)


def vector_store(writer: Writer, loop: For, store: Store) -> VectorStore:
    """The vector form of a store of the vectorized loop `loop`, asynchronous where that is possible.

    Where only single lanes can be, its width is 1: lanes on their own that nobody waits for beat vectors that are
    waited for.
    """
    if store.buffer.pipelined and moved(store.value) is not None:
        found = AsyncStore(writer, loop, store)
        if found.width > 1 or BYTES[store.buffer.dtype] in SIZES:
            return found
    return VectorStore(writer, loop, store)


class AsyncStore(VectorStore):
    """Chunks of 16, 8 or 4 bytes; `width` is 1 when lanes are no neighbours or differ in their condition."""

    def __post_init__(self) -> None:
        found = moved(self.store.value)
        assert found is not None
        load, cond = found
        lane, element = self.loop.var, BYTES[self.store.buffer.dtype]
        if cond is not None and lane in free_vars(cond):
            return
        for size in SIZES:
            width = size // element
            if width < 2 or self.loop.extent % width:
                continue
            if all(vector_start(index, lane, width) is not None for index in (self.store.index, load.index)):
                self.width = width
                return

    def emit(self) -> None:
        """One chunk; the lane of the writer is its first."""
        found = moved(self.store.value)
        assert found is not None
        load, cond = found
        to, source = [
            self.writer.buffer(buffer) + self._offset(start)
            for buffer, index in ((self.store.buffer, self.store.index), (load.buffer, load.index))
            if (start := vector_start(index, self.loop.var, self.width)) is not None
        ]
        size = self.width * BYTES[self.store.buffer.dtype]
        self.writer.line(_call(self.writer, size, to, source, cond))


def _call(writer: Writer, size: int, to: str, source: str, cond: Expr | None) -> str:
    arguments = [to, source] + ([] if cond is None else [writer.text.expr(cond)])
    return f"copy_async<{size}>({', '.join(arguments)});"
