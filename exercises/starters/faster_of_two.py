"""Chapter 9, 25 minutes: which of two programs is faster.

`time_a()` and `time_b()` run a program once and give its seconds. The machine is as real ones are: the first run of a
program finds cold caches, the clock drifts by some ten percent over the session, now and then something interrupts a
run and makes it much longer, never shorter. Say which program is faster ("a" or "b") with at most 60 runs in all. They
differ by 3 percent. More than 95 of 100 answers must be right.
"""

import statistics


def faster(time_a, time_b):
    a = [time_a() for _ in range(30)]  # is this fair? ...
    b = [time_b() for _ in range(30)]
    return "a" if statistics.mean(a) < statistics.mean(b) else "b"
