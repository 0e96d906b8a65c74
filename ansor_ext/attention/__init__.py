"""Attention in one kernel: scores are never written to memory."""
