"""Exercises that check themselves: starters with a hole, checks, and hidden solutions (docs/exercises.md)."""
