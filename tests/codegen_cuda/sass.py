"""The instructions of a cubin, as far as tests ask: how many have a given opcode."""

from __future__ import annotations

import struct

LDGSTS = 0xFAE
"""Copy from global to shared memory without a register in between (sm_80 and newer)."""
INSTRUCTION = 16


def texts(cubin: bytes) -> list[bytes]:
    """The code of each kernel of a cubin (an ELF file)."""
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", cubin, start + size * k) for k in range(count)]
    table = headers[names][4]
    return [
        cubin[place : place + length]
        for name, _, _, _, place, length in headers
        if cubin[table + name :].startswith(b".text.")
    ]


def count(cubin: bytes, opcode: int) -> int:
    """The instructions with `opcode` in their lowest 12 bits, which is where it stands from sm_70 on."""
    words = [struct.unpack_from("<H", text, k)[0] for text in texts(cubin) for k in range(0, len(text), INSTRUCTION)]
    return sum(word & 0xFFF == opcode for word in words)
