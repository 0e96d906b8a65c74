"""Chapter 9, 25 minutes: the winner's curse.

A search has measured 40 programs once each: `measure(k)` gives the seconds of program k, off by 10 percent or so. The
best figure of 40 belongs to a fast program that was lucky, too, so it promises more than the program keeps. Find a fast
program and say honestly what it takes: `report(measure, 40)` gives its number and your estimate of its seconds, with at
most 160 calls of `measure`. Over many searches the estimate must be right on average, to one percent, and
vary by less than three; the programs must be slower than the best of the 40 by less than 12 percent on average.
"""


def report(measure, programs):
    figures = [measure(k) for k in range(programs)]
    best = min(range(programs), key=lambda k: figures[k])
    return best, figures[best]  # is this what it takes? ...
