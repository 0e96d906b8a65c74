"""Open sizes: one program for all values of an extent within its bounds."""
