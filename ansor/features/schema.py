"""What every feature column says: its name, unit, group, formula and scale.

One row describes one computed stage.  The columns express what Ansor's 164 do (appendix B of the Ansor paper), with its
faults corrected, and what a GPU adds.  Where the meaning departs from Ansor's:

    computation     multiply-adds are found; only points inside the guards count; `if_then_else` is a selection
    buffers         the stored buffer comes first, then what is read, the largest tensor first (Ansor: by lines, which
                    lets buffers change places between programs); loops of extent 1 are no loops;
                    `lines` leaves out the loops that really were skipped, `unique_lines` uses the right buffer
    curve           samples are equally spaced in log2 of the operations, so that registers and caches are seen

Words of the formulas: P is the number of points of the stage that the program computes in all; the loops of a row
are those around its statement, without the threads that share the stage's storage; a fused loop counts as its parts.
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass
from typing import Literal

VERSION = 2
BUFFERS = 5
SAMPLES = 10

Scale = Literal["log2", "none"]


@dataclass(frozen=True, slots=True)
class Column:
    """`scale` is what is done to the value: log2(1 + x), or nothing; no value is negative."""

    name: str
    unit: str
    group: str
    formula: str
    scale: Scale = "log2"


def _computation() -> list[Column]:
    kinds = {
        "mad": "multiplications that are added or subtracted at once",
        "addsub": "other additions and subtractions",
        "mul": "other multiplications",
        "divmod": "divisions and remainders",
        "cmp": "comparisons, minima and maxima",
        "mathfunc": "calls of mathematical functions",
        "otherfunc": "conversions to this type",
    }
    out = [
        Column(f"{kind}_{name}", "operations", "computation", f"P times the {text} of {kind} numbers in one point.")
        for kind in ("float", "int")
        for name, text in kinds.items()
    ]
    return [
        *out,
        Column("bool_op", "operations", "computation", "P times the ands, ors and nots in one point."),
        Column(
            "select_op", "operations", "computation", "P times the selections in one point, protected ones included."
        ),
    ]


POSITIONS = (
    "none", "inner_spatial", "middle_spatial", "outer_spatial",
    "inner_reduce", "middle_reduce", "outer_reduce", "mixed",
)  # fmt: skip


def _marks(name: str, what: str) -> list[Column]:
    group = name
    out = [
        Column(f"{name}_num", "loops", group, f"Number of {what} loops longer than 1."),
        Column(f"{name}_prod", "iterations", group, f"Product of the extents of the {what} loops; 0 if there is none."),
        Column(f"{name}_len", "iterations", group, f"Extent of the innermost {what} loop longer than 1; 0 if none."),
    ]
    where = {
        "none": f"no {what} loop is longer than 1",
        "mixed": f"{what} loops run over spatial and reduction axes",
    }
    for position in POSITIONS:
        place, _, kind = position.partition("_")
        text = where.get(
            position,
            f"the {what} loops are {kind} ones and "
            + {
                "inner": "the innermost loop is one of them",
                "middle": "neither the innermost nor the outermost loop is one of them",
                "outer": "the outermost loop is one of them, the innermost is not",
            }.get(place, ""),
        )
        out.append(Column(f"{name}_at_{position}", "flag", group, f"1 if {text}, else 0.", "none"))
    return out


def _launch() -> list[Column]:
    tags = [f"{kind}Idx_{axis}" for kind in ("block", "thread") for axis in "xyz"]
    return [
        Column("is_gpu", "flag", "launch", "1 if the kernel has block or (virtual) thread loops, else 0.", "none"),
        *[Column(f"{tag}_len", "count", "launch", f"Extent of {tag.replace('_', '.')}; 1 if absent.") for tag in tags],
        Column("vthread_len", "count", "launch", "Product of the virtual thread extents; 1 if there is none."),
    ]


def _buffer(b: str) -> list[Column]:
    def column(name: str, unit: str, formula: str, scale: Scale = "log2") -> Column:
        return Column(f"{b}.{name}", unit, "buffer", formula, scale)

    quotient = "divided by reuse_ct if there is reuse, else doubled."
    return [
        column("is_read", "flag", "1 if the buffer is only read, else 0.", "none"),
        column("is_write", "flag", "1 if the buffer is only stored to, else 0.", "none"),
        column("is_read_write", "flag", "1 if the buffer is updated (a reduction), else 0.", "none"),
        column("bytes", "bytes", "P times the accesses in one point times the bytes of an element."),
        column("unique_bytes", "bytes", "Bytes of the different elements that one storage sees under all loops."),
        column("lines", "lines", "P over the turns in place, times stride / line up to 1; at least unique_lines."),
        column("unique_lines", "lines", "unique_bytes over the contiguous run of them, at most a line."),
        column("reuse_loop", "flag", "1 if the nearest reuse is a loop that leaves the address in place.", "none"),
        column("reuse_serial", "flag", "1 if the nearest reuse is another stage in a common loop.", "none"),
        column("reuse_none", "flag", "1 if there is no reuse.", "none"),
        column("reuse_dis_iter", "iterations", "Iterations of the loops inside the nearest reuse."),
        column("reuse_dis_bytes", "bytes", "Bytes that all buffers of the row see inside the nearest reuse."),
        column("reuse_ct", "count", "Extent of the reusing loop, or number of the other stages."),
        column("bytes_d_reuse_ct", "bytes", f"bytes {quotient}"),
        column("unique_bytes_d_reuse_ct", "bytes", f"unique_bytes {quotient}"),
        column("lines_d_reuse_ct", "lines", f"lines {quotient}"),
        column("unique_lines_d_reuse_ct", "lines", f"unique_lines {quotient}"),
        column("stride", "elements", "Step in memory of the innermost loop longer than 1; 0 if it stays in place."),
        column("coalescing", "fraction", "Bytes used of the 32-byte sectors that a warp's access of global memory "
               "touches; 0 for other memory.", "none"),
        column("bank_conflict", "turns", "Words that a warp accesses at once in shared memory, over the banks they "
               "lie in; 0 for other memory."),
    ]  # fmt: skip


def _curve() -> list[Column]:
    text = "Operations per byte under the innermost loops that make up 2^({}/{} log2) of all iterations."
    return [
        Column(f"arith_intensity_{i}", "operations/byte", "curve", text.format(i + 1, SAMPLES)) for i in range(SAMPLES)
    ]


def _allocation() -> list[Column]:
    def column(name: str, unit: str, formula: str) -> Column:
        return Column(name, unit, "allocation", formula)

    return [
        column("alloc_size", "bytes", "Bytes of one storage of the stage; 0 for an argument."),
        column("alloc_prod", "elements", "Elements of one storage times how often it is set up; 0 for an argument."),
        column("alloc_outer_prod", "iterations", "How often the storage is set up; 0 for an argument."),
        column("alloc_inner_prod", "iterations", "Iterations of the row's loops inside; 0 for an argument."),
    ]


def _outer() -> list[Column]:
    def column(name: str, unit: str, formula: str, scale: Scale = "log2") -> Column:
        return Column(name, unit, "outer", formula, scale)

    return [
        column("outer_prod", "iterations", "Product of the extents of the row's loops, guarded iterations included."),
        column("num_loops", "loops", "Number of the row's loops longer than 1."),
        column("auto_unroll", "statements", "auto_unroll_max_step of the stage, or of the nearest one around it."),
        column("pragma_unrolled", "statements", "Copies of the statement that auto_unroll makes; 1 if none."),
        column("points", "points", "P, the points that are computed in all."),
        column("parallel_balance", "fraction", "Parallel iterations over cores times rounds; 0 if none.", "none"),
    ]


def _gpu() -> list[Column]:
    def column(name: str, unit: str, formula: str, scale: Scale = "log2") -> Column:
        return Column(name, unit, "gpu", formula + " 0 without a GPU.", scale)

    limit = "Blocks that one multiprocessor holds by its"
    return [
        column("blocks", "blocks", "Blocks of the kernel."),
        column("threads", "threads", "Threads of a block."),
        column("warp_fill", "fraction", "Threads of a block over the threads of its warps.", "none"),
        column("shared_bytes", "bytes", "Shared memory of a block."),
        column("shared_fraction", "fraction", "shared_bytes over what a block may have.", "none"),
        column("accumulators", "values", "32-bit values a thread keeps in local storage, virtual threads included."),
        column("registers", "registers", "Registers of a thread: accumulators and 24 more, at most 255, in eights."),
        column("spilled", "registers", "Registers of a thread beyond 255."),
        column("blocks_by_threads", "blocks", f"{limit} threads."),
        column("blocks_by_shared", "blocks", f"{limit} shared memory."),
        column("blocks_by_registers", "blocks", f"{limit} registers."),
        column("occupancy", "fraction", "Threads at once on a multiprocessor over the threads it can have.", "none"),
        column("waves", "waves", "Blocks over the blocks that all multiprocessors hold at once."),
        column("tail_efficiency", "fraction", "waves over waves rounded up.", "none"),
        column("row_bytes_per_block", "bytes", "Bytes of global memory that the row fetches for one block."),
        column("kernel_bytes_per_block", "bytes", "The same, of all rows of the kernel."),
        column("kernel_flops", "operations", "Float operations of all rows of the kernel."),
        column("kernel_flops_per_thread", "operations", "kernel_flops over all threads."),
        column("kernel_intensity", "operations/byte", "kernel_flops over the bytes that all blocks fetch."),
    ]  # fmt: skip


def _registers() -> list[Column]:
    def column(name: str, unit: str, formula: str, scale: Scale = "log2") -> Column:
        return Column(name, unit, "registers", formula + " 0 on a GPU and without a reduction of its own.", scale)

    return [
        column("sums_held", "registers", "Registers that hold sums while the reduction runs; 0 if they are in memory."),
        column("sums_steps", "steps", "Steps of the reduction for which sums stay there; 1 if they are in memory."),
        column("sums_parts", "parts", "Parts, one after the other, in which sums are done that do not fit; else 1."),
        column("tile_vectors", "vectors", "Vectors of sums that a step adds to: those held, or one loop's pieces."),
        column("vector_lanes", "elements", "Elements of a vector of sums, on average; 1 if they are no vectors."),
        column("vector_fill", "fraction", "vector_lanes over the elements of the longest vector.", "none"),
        column("vector_masked", "flag", "1 if the last vector is used in part, under a mask, else 0.", "none"),
        column("step_vectors", "vectors", "Vectors that a step reads."),
        column("step_broadcasts", "elements", "Elements that a step reads for all lanes, once for each vector size."),
        column("step_elements", "elements", "Elements that a step reads one by one."),
        column("step_reads", "reads", "All that a step reads over tile_vectors."),
        column("operands_live", "registers", "Registers that hold operands of a step."),
        column("tile_spilled", "registers", "Sums and operands beyond the registers of the processor."),
    ]  # fmt: skip


def _schema() -> tuple[Column, ...]:
    marks = [*_marks("vec", "vectorized"), *_marks("unroll", "unrolled"), *_marks("parallel", "parallel")]
    buffers = [c for b in range(BUFFERS) for c in _buffer(f"B{b}")]
    groups = [_computation(), marks, _launch(), buffers, _curve(), _allocation(), _outer(), _gpu(), _registers()]
    return tuple([c for group in groups for c in group])


SCHEMA: tuple[Column, ...] = _schema()
INDEX: dict[str, int] = {c.name: i for i, c in enumerate(SCHEMA)}


def schema_hash(columns: tuple[Column, ...] = SCHEMA) -> str:
    """A digest of all columns; it changes when a name, unit, group, formula, scale or the order does."""
    return hashlib.sha256(repr([astuple(c) for c in columns]).encode()).hexdigest()[:16]
