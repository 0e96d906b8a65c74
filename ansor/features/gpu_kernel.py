"""Columns of a GPU kernel: launch, occupancy, waves, registers, shared memory.

The numbers of the multiprocessor are those of an H100 or H200; HardwareParams has no fields for them.  They scale
columns and never decide whether a program is run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from te_lite.bounds.loop_scope import BLOCKS, THREADS, tile_count
from te_lite.expr.storage import stored_elements

from ..core.target.hardware import HardwareParams
from .lanes import Lanes, Value
from .row_plans import Plan, RowPlan

WORD_BYTES = 4
WARP = 32
BASE_REGISTERS = 24
MAX_REGISTERS = 255


@dataclass(frozen=True, slots=True)
class Multiprocessor:
    """What the blocks of one multiprocessor share; `count` multiprocessors make a device."""

    count: int = 132
    threads: int = 2048
    blocks: int = 32
    shared_bytes: int = 228 * 1024
    reserved_bytes: int = 1024
    registers: int = 65536


MULTIPROCESSOR = Multiprocessor()


def launch(plan: Plan, root: int, lanes: Lanes) -> dict[str, Value]:
    """The extent of each thread axis of a kernel: the largest that one of its stages binds to it."""
    found: dict[str, Value] = dict.fromkeys((*BLOCKS, *THREADS, "vthread"), 1.0)
    for row in plan.rows:
        if row.nest.root != root:
            continue
        own: dict[str, Value] = {}
        for loop in row.nest.loops[row.nest.around :]:
            if loop.tag in found:
                own[loop.tag] = own.get(loop.tag, 1.0) * lanes.extent(loop.stage, loop.uid)
        for tag, extent in own.items():
            found[tag] = np.maximum(found[tag], extent)
    return found


def launch_columns(gpu: bool, found: dict[str, Value]) -> dict[str, Value]:
    """The columns of the group "launch"."""
    axes = {f"{tag.replace('.', '_')}_len": found[tag] for tag in (*BLOCKS, *THREADS)}
    return {"is_gpu": float(gpu), "vthread_len": found["vthread"], **axes}


def kernel_columns(
    plan: Plan, root: int, lanes: Lanes, found: dict[str, Value], hardware: HardwareParams
) -> dict[str, Value]:
    """Occupancy, waves, registers and shared memory of a GPU kernel."""
    blocks = found["blockIdx.x"] * found["blockIdx.y"] * found["blockIdx.z"]
    threads = found["threadIdx.x"] * found["threadIdx.y"] * found["threadIdx.z"]
    shared, values = _storage(plan, root, lanes)
    wanted = BASE_REGISTERS + values
    registers = np.ceil(np.minimum(wanted, MAX_REGISTERS) / 8) * 8
    warps = np.ceil(threads / WARP)
    m = MULTIPROCESSOR
    count = hardware.num_cores if hardware.num_cores > 0 else m.count
    by_threads = np.floor(m.threads / (warps * WARP))
    by_shared = np.floor(m.shared_bytes / (shared + m.reserved_bytes))
    by_registers = np.floor(m.registers / (registers * warps * WARP))
    held = np.minimum(np.minimum(by_threads, by_shared), np.minimum(by_registers, float(m.blocks)))
    waves = blocks / (np.maximum(held, 1.0) * count)
    return {
        "blocks": blocks,
        "threads": threads,
        "warp_fill": threads / (warps * WARP),
        "shared_bytes": shared,
        "shared_fraction": shared / max(hardware.max_shared_memory_per_block, 1),
        "accumulators": values,
        "registers": registers,
        "spilled": np.maximum(wanted - MAX_REGISTERS, 0.0),
        "blocks_by_threads": by_threads,
        "blocks_by_shared": by_shared,
        "blocks_by_registers": by_registers,
        "occupancy": held * threads / m.threads,
        "waves": waves,
        "tail_efficiency": waves / np.ceil(waves),
    }


def _storage(plan: Plan, root: int, lanes: Lanes) -> tuple[Value, Value]:
    """`(bytes of shared memory of a block, 32-bit values that a thread keeps, its part of fragments included)`."""
    shared: Value = 0.0
    values: Value = 0.0
    for row in plan.rows:
        if row.nest.root != root or row.argument:
            continue
        size = storage_bytes(row, lanes)
        if row.scope == "shared":
            shared = shared + size
        elif row.scope == "local":
            copies: Value = 1.0
            for loop in row.nest.loops[: row.nest.around]:
                if loop.tag == "vthread":
                    copies = copies * lanes.extent(loop.stage, loop.uid)
            values = values + size * copies / WORD_BYTES
        elif row.scope == "fragment":
            values = values + size / (WARP * WORD_BYTES)
    return shared, values


def storage_bytes(row: RowPlan, lanes: Lanes) -> Value:
    """The bytes of one storage of a row's stage, all its tiles included; of what is shared out, a thread's part."""
    total: Value = float(row.element * row.outputs)
    for extent in lanes.region(row.nest.stage)[: row.spatial]:
        total = total * extent
    for uid in row.shared_out:
        total = total / lanes.extent(row.nest.stage, uid)
    return stored_elements(total, 1, lanes.value(tile_count(lanes.bounds.state, row.nest.stage)))
