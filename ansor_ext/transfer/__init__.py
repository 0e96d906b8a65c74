"""Programs of similar tasks, carried over to the extents of another one, with which its search begins."""
