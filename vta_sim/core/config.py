"""The numbers that a machine is built from, read from `vta_config.json`, and what follows from them.

Sizes in the file are base-2 logarithms.  An element is what one memory address holds: a vector of inputs, a matrix of
weights, a vector of accumulators, or a micro-op.  A configuration is checked when it is made, so whoever holds one may
build a machine of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from te_lite.errors import require

from .errors import ConfigError
from .kinds import Memory

TARGETS = ("sim", "tsim", "pynq", "ultra96", "zcu104", "de10nano", "intelfocl")
PAGE_BYTES = 4096
UOP_BITS = 32
WORD_BITS = 64
LOOP_BITS = 14
MAX_DEPTH_BITS = 16  # the width of sram_base in a load or store


@dataclass(frozen=True)
class Config:
    """A machine.  Raises ConfigError, in one sentence, when its numbers do not fit together."""

    target: str = "sim"
    hw_ver: str = "0.0.2"
    log_inp_width: int = 3
    log_wgt_width: int = 3
    log_acc_width: int = 5
    log_batch: int = 0
    log_block: int = 4
    log_uop_buff_size: int = 15
    log_inp_buff_size: int = 15
    log_wgt_buff_size: int = 18
    log_acc_buff_size: int = 17

    def __post_init__(self) -> None:
        _check_values(self)
        _check_memories(self)
        _check_encoding(self)

    @property
    def batch(self) -> int:
        """Rows of an input or accumulator element."""
        return 1 << self.log_batch

    @property
    def block_in(self) -> int:
        """Input channels that one matrix product contracts."""
        return 1 << self.log_block

    @property
    def block_out(self) -> int:
        """Output channels of one element."""
        return 1 << self.log_block

    @property
    def inp_width(self) -> int:
        """Bits of an activation; also of an output."""
        return 1 << self.log_inp_width

    @property
    def wgt_width(self) -> int:
        """Bits of a weight."""
        return 1 << self.log_wgt_width

    @property
    def acc_width(self) -> int:
        """Bits of an accumulator."""
        return 1 << self.log_acc_width

    def elem_shape(self, memory: Memory) -> tuple[int, ...]:
        """The shape of one element; a micro-op is a number."""
        match memory:
            case Memory.UOP:
                return ()
            case Memory.WGT:
                return (self.block_out, self.block_in)
            case Memory.INP:
                return (self.batch, self.block_in)
            case _:
                return (self.batch, self.block_out)

    def elem_bytes(self, memory: Memory) -> int:
        """Bytes of one element in DRAM."""
        match memory:
            case Memory.UOP:
                return UOP_BITS // 8
            case Memory.WGT:
                return self.block_out * self.block_in * self.wgt_width // 8
            case Memory.INP:
                return self.batch * self.block_in * self.inp_width // 8
            case Memory.ACC:
                return self.batch * self.block_out * self.acc_width // 8
            case _:
                return self.batch * self.block_out * self.inp_width // 8

    def buffer_bytes(self, memory: Memory) -> int:
        """Bytes of an on-chip memory.  OUT mirrors ACC, narrowed."""
        logs = {
            Memory.UOP: self.log_uop_buff_size,
            Memory.WGT: self.log_wgt_buff_size,
            Memory.INP: self.log_inp_buff_size,
            Memory.OUT: self.log_acc_buff_size + self.log_inp_width - self.log_acc_width,
        }
        return 1 << logs.get(memory, self.log_acc_buff_size)

    def depth(self, memory: Memory) -> int:
        """Elements of an on-chip memory."""
        memory = Memory.ACC if memory is Memory.ACC_8BIT else memory
        return self.buffer_bytes(memory) // self.elem_bytes(memory)

    def index_bits(self, memory: Memory) -> int:
        """Bits of an address in an on-chip memory."""
        return self.depth(memory).bit_length() - 1

    @property
    def bitstream(self) -> str:
        """The name of the hardware image, such as `1x16_i8w8a32_15_15_18_17`."""
        sizes = (self.log_uop_buff_size, self.log_inp_buff_size, self.log_wgt_buff_size, self.log_acc_buff_size)
        widths = f"i{self.inp_width}w{self.wgt_width}a{self.acc_width}"
        return f"{self.batch}x{self.block_in}_{widths}_" + "_".join(map(str, sizes))

    @property
    def model(self) -> str:
        """The name of the machine in records: the target and the hardware image."""
        return f"{self.target}_{self.bitstream}"

    @property
    def target_text(self) -> str:
        """The target of programs for the machine, as short as it can be said."""
        return f"vta -model={self.model}"

    def to_json(self) -> dict[str, Any]:
        """The fields as `vta_config.json` names them."""
        return {key.upper(): value for key, value in asdict(self).items()}


def config_from_json(data: object, subject: str = "vta config") -> Config:
    """A configuration from the fields of `vta_config.json`; all are needed.  Raises ConfigError."""
    require(isinstance(data, Mapping), ConfigError, subject, "must be a JSON object", found=type(data).__name__)
    assert isinstance(data, Mapping)
    known = {f.name.upper(): f.name for f in fields(Config)}
    unknown = sorted(str(key) for key in data if key not in known)
    missing = sorted(key for key in known if key not in data)
    require(not unknown, ConfigError, subject, "has keys that no configuration has", unknown=unknown)
    require(not missing, ConfigError, subject, "lacks keys that every configuration needs", missing=missing)
    return Config(**{known[key]: value for key, value in data.items()})


def config_of_model(model: str) -> Config:
    """The configuration of a name such as `sim_1x16_i8w8a32_15_15_18_17` (`Config.model`).  Raises ConfigError."""
    numbers = re.fullmatch(r"([a-z0-9]+)_(\d+)x(\d+)_i8w8a32_(\d+)_(\d+)_(\d+)_(\d+)", model)
    law = "must be named as sim_1x16_i8w8a32_15_15_18_17 is: board, block sizes, widths, and logarithms of buffer sizes"
    require(numbers is not None, ConfigError, "machine", law, found=model)
    assert numbers is not None
    target, (batch, block, *sizes) = numbers[1], [int(x) for x in numbers.groups()[1:]]
    powers = batch.bit_count() == 1 and block.bit_count() == 1
    require(powers, ConfigError, "machine", "block sizes must be powers of two", found=model)
    uop, inp, wgt, acc = sizes
    return replace(
        preset(target), log_batch=batch.bit_length() - 1, log_block=block.bit_length() - 1, log_uop_buff_size=uop,
        log_inp_buff_size=inp, log_wgt_buff_size=wgt, log_acc_buff_size=acc,
    )  # fmt: skip


def load_config(path: str | Path) -> Config:
    """Read `vta_config.json`.  Raises ConfigError when the file is missing, is no JSON, or fits no machine."""
    subject = str(path)
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{subject}: no configuration can be read from it ({error})") from error
    return config_from_json(data, subject)


def preset(target: str) -> Config:
    """The configuration shipped for a board or simulator, one of TARGETS.  Raises ConfigError."""
    return replace(Config(), target=target, hw_ver="0.0.1" if target == "zcu104" else "0.0.2")


def _check_values(c: Config) -> None:
    require(c.target in TARGETS, ConfigError, "TARGET", f"must be one of {', '.join(TARGETS)}", found=c.target)
    require(isinstance(c.hw_ver, str), ConfigError, "HW_VER", "must be a text", found=c.hw_ver)
    values = asdict(c)
    for name, value in values.items():
        if name.startswith("log_"):
            whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 30
            require(whole, ConfigError, name.upper(), "must be a whole number from 0 to 30", found=value)
    for name, need in (("log_inp_width", 3), ("log_wgt_width", 3), ("log_acc_width", 5)):
        law = f"must be {need}, for the machine computes on int8 inputs and weights and int32 accumulators"
        require(values[name] == need, ConfigError, name.upper(), law, found=values[name])


def _check_memories(c: Config) -> None:
    for memory in (Memory.UOP, Memory.INP, Memory.WGT, Memory.ACC):
        elem, name = c.elem_bytes(memory), f"LOG_{memory.name}_BUFF_SIZE"
        law = f"an element of {memory.name} must fit a page of {PAGE_BYTES} bytes"
        require(elem <= PAGE_BYTES, ConfigError, "LOG_BATCH, LOG_BLOCK", law, bytes=elem)
        law = f"the memory must hold 2 to {1 << MAX_DEPTH_BITS} elements of {elem} bytes"
        depth = c.buffer_bytes(memory) / elem
        require(2 <= depth <= 1 << MAX_DEPTH_BITS, ConfigError, name, law, elements=depth)


def _check_encoding(c: Config) -> None:
    acc, inp, wgt = (c.index_bits(m) for m in (Memory.ACC, Memory.INP, Memory.WGT))
    law = f"the indices of a micro-op (ACC, the wider of ACC and INP, WGT) must fill {UOP_BITS} bits exactly"
    require(acc + max(acc, inp) + wgt == UOP_BITS, ConfigError, "buffer sizes", law, acc=acc, inp=inp, wgt=wgt)
    begin = c.index_bits(Memory.UOP)
    used = 8 + begin + (begin + 1) + 2 * LOOP_BITS
    law = f"header, micro-op range and loop extents must fit {WORD_BITS} bits of an instruction"
    require(used <= WORD_BITS, ConfigError, "LOG_UOP_BUFF_SIZE", law, bits=used)
    used = 2 * acc + 2 * max(acc, inp) + 20
    law = f"the factors and the immediate of an ALU instruction must fit {WORD_BITS} bits"
    require(used <= WORD_BITS, ConfigError, "LOG_ACC_BUFF_SIZE", law, bits=used)
