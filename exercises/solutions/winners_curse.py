"""Choose by some figures, report by others: a figure that chose is no evidence."""

import statistics


def report(measure, programs):
    first = [statistics.mean([measure(k), measure(k)]) for k in range(programs)]
    best = min(range(programs), key=lambda k: first[k])
    return best, statistics.mean(measure(best) for _ in range(80))
