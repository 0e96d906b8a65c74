"""What several extensions ask about the stages of a state, and rules around stages of their own."""
