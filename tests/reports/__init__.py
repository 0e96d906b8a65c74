"""Classes of reports about other projects: one instance of each, and its siblings drawn at random."""
