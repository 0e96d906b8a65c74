"""The machine that is programmed for, under the names of `vta.get_env()`.

env = get_env()                       the default machine, or that of a `vta_config.json`
env.BATCH, env.BLOCK_OUT, env.TARGET, env.target
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ansor.core.target.target import Target

from .config import Config, load_config
from .kinds import Memory


@dataclass(frozen=True)
class Environment:
    """A configuration with the names that programs for the machine use; sizes of memories are in bytes."""

    config: Config

    @property
    def BATCH(self) -> int:
        """Images in an element."""
        return self.config.batch

    @property
    def BLOCK_IN(self) -> int:
        """Input channels in an element."""
        return self.config.block_in

    @property
    def BLOCK_OUT(self) -> int:
        """Output channels in an element."""
        return self.config.block_out

    @property
    def INP_WIDTH(self) -> int:
        """Bits of an activation."""
        return self.config.inp_width

    @property
    def WGT_WIDTH(self) -> int:
        """Bits of a weight."""
        return self.config.wgt_width

    @property
    def ACC_WIDTH(self) -> int:
        """Bits of an accumulator."""
        return self.config.acc_width

    @property
    def OUT_WIDTH(self) -> int:
        """Bits of an output."""
        return self.config.inp_width

    def buffer_bytes(self, memory: Memory) -> int:
        """Bytes of a memory on the chip: INP_BUFF_SIZE and its like."""
        return self.config.buffer_bytes(memory)

    @property
    def TARGET(self) -> str:
        """The board or simulator."""
        return self.config.target

    @property
    def BITSTREAM(self) -> str:
        """The name of the hardware image."""
        return self.config.bitstream

    @property
    def MODEL(self) -> str:
        """Target and hardware image: what records are told apart by."""
        return self.config.model

    @property
    def target(self) -> Target:
        """What programs for the machine are made for."""
        return Target(f"vta -device=vta -keys=vta,cpu -model={self.MODEL}")

    @property
    def target_vta_cpu(self) -> Target:
        """The processor beside the machine, which is this one."""
        return Target(f"c -device=arm_cpu -model={self.TARGET}")

    @property
    def target_host(self) -> Target:
        """What the code around the programs is made for."""
        return Target("c")


def get_env(path: str | Path | None = None) -> Environment:
    """The default machine, or the one that a `vta_config.json` describes.

    Raises ConfigError, in one sentence, when the file is missing, is no JSON, or fits no machine.
    """
    return Environment(Config() if path is None else load_config(path))
