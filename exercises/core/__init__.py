"""The checker: the catalogue, the verdict on an answer, the process it runs in, the progress, the command."""
