"""The boards that VTA was built for: clock, memory bus, and where its registers lie."""

from __future__ import annotations

from dataclasses import dataclass, replace

from te_lite.errors import require

from .errors import ConfigError

MODULE_REGISTERS = {"fetch": 0x0000, "load": 0x1000, "compute": 0x2000, "store": 0x3000}
"""Where the registers of each module begin, from the base of the board."""


@dataclass(frozen=True)
class Board:
    """`mhz`: clock; `hls_ns`: the period asked of synthesis; `axi_bits`: width of the memory bus."""

    device: str
    mhz: int
    hls_ns: int
    axi_bits: int
    coherent: bool
    axi_prot: int
    register_base: int

    def register(self, module: str) -> int:
        """The address of the first register of `fetch`, `load`, `compute` or `store`."""
        return self.register_base + MODULE_REGISTERS[module]


_PYNQ = Board("xc7z020clg484-1", 100, 7, 64, True, 0b000, 0x43C00000)
_ULTRA96 = Board("xczu3eg-sbva484-1-e", 333, 2, 128, True, 0b010, 0xA0000000)

BOARDS = {
    "pynq": _PYNQ,
    "ultra96": _ULTRA96,
    "zcu104": replace(_ULTRA96, device="xczu7ev-ffvc1156-2-e"),
    "de10nano": Board("5CSEBA6U23I7", 100, 2, 64, True, 0b100, 0xFF220000),
    "sim": _PYNQ,
    "tsim": _PYNQ,
    "intelfocl": _PYNQ,
}


def board(target: str) -> Board:
    """The board of a target of `vta_config.json`; simulators take the numbers of the Pynq.  Raises ConfigError."""
    require(target in BOARDS, ConfigError, "board", f"must be one of {', '.join(BOARDS)}", found=target)
    return BOARDS[target]
