"""One module an exercise: its hint, and the check of an answer."""
