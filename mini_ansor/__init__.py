"""The auto-scheduler of the Ansor paper in twelve files; README.md beside this one says what is in each."""
