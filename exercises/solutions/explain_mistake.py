"""The slow one has no vector loop, and nothing that the model sees says so."""

MISSING = "vec_len"
