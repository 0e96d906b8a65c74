"""Products of few rows on a GPU, which wait for memory alone."""
