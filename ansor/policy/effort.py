"""How much a search may cost, in words: nothing, a little, all that was asked for."""

from __future__ import annotations

NONE, QUICK, FULL = "none", "quick", "full"
EFFORTS = (NONE, QUICK, FULL)
QUICK_SECONDS, QUICK_TRIALS = 10.0, 128
"""What a task gets at most with the effort `quick`; less where nothing more is to be had (`early_stopping.py`)."""
