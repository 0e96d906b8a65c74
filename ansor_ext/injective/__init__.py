"""Plain stages, coarsened: several elements, or whole vectors, for each thread or task."""
