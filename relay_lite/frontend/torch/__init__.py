"""Import of programs that `torch.export` made: core ATen operators, from a file or from the object itself.

Law: nothing here needs torch.  A file is read as JSON and raw weights; an object of torch is read as it is handed in,
and decomposed by torch, which is there then.
"""

from __future__ import annotations

from .importer import from_exported_program

__all__ = ["from_exported_program"]
