"""Chapter 6: CUDA on the emulator."""

from . import Mistake, Mistakes

ROWS = [
    f's[tile].bind({a}, te.thread_axis("threadIdx.y"))\n    s[tile].bind({b}, te.thread_axis("threadIdx.x"))'
    for a, b in (("row", "column"), ("column", "row"))
]
MISTAKES = {
    "block_sums": Mistakes(
        "must lie between a write",
        (
            Mistake("i < n ? x[i] : 0.0f", "x[i]", "compare the index with the size"),
            Mistake("    __syncthreads();\n    if (t < step) part", "    if (t < step) __syncthreads(), part",
                    "a branch that some do not take"),
            Mistake("    __syncthreads();\n", "", "must lie between a write"),
            Mistake("step > 0", "step > 1", "the sum of block [0] is wrong"),
            Mistake("  part[t] = i < n ? x[i] : 0.0f;", "  if (i < n) part[t] = x[i];", "reads byte"),
        ),
        (('part[t + step];', 'part[t + step];\n    __syncthreads();'),),
    ),
    "transpose_banks": Mistakes(
        "asked 32 times at once",
        (
            Mistake("storage_align(row, 32, 1)", "storage_align(row, 32, 2)", "asked 2 times at once"),
            Mistake("storage_align(row, 32, 1)", "storage_align(row, 128, 65)", "4,224 are enough"),
            Mistake('s[B].bind(i, te.thread_axis("threadIdx.y"))\n    s[B].bind(j, te.thread_axis("threadIdx.x"))',
                    's[B].bind(i, te.thread_axis("threadIdx.x"))\n    s[B].bind(j, te.thread_axis("threadIdx.y"))',
                    "B is written by a warp in 32 lines"),
            Mistake(*ROWS, "A is read by a warp in 32 lines"),
        ),
        (('storage_align(row, 32, 1)', 'storage_align(row, 2, 1)'),),
    ),
}  # fmt: skip
