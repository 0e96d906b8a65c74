"""In turns, so that both meet the same drift; a warm-up; and the median of ratios, which outliers do not move."""

import statistics


def faster(time_a, time_b):
    time_a(), time_b()
    ratios = [time_a() / time_b() for _ in range(29)]
    return "a" if statistics.median(ratios) < 1 else "b"
