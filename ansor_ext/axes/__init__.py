"""Steps that give a stage other axes."""
