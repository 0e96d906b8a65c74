"""Tiles in shared memory that are padded or transposed, so that threads read them without bank conflicts."""
