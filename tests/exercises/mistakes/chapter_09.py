"""Chapter 9: measuring honestly."""

from . import Mistake, Mistakes

TURNS = "ratios = [time_a() / time_b() for _ in range(29)]\n"
ONE_BY_ONE = """a = [time_a() for _ in range(29)]
    b = [time_b() for _ in range(29)]
    ratios = [x / y for x in [statistics.median(a)] for y in [statistics.median(b)]]
"""
MISTAKES = {
    "faster_of_two": Mistakes(
        "measure in turns",
        (
            Mistake(TURNS, ONE_BY_ONE, "measure in turns"),
            Mistake("statistics.median(ratios)", "statistics.mean(ratios)", "one interruption moves a mean"),
            Mistake("range(29)", "range(40)", "60 are allowed"),
            Mistake("time_a(), time_b()\n    ratios = [time_a() / time_b() for _ in range(29)]",
                    "ratios = [sum(time_a() / time_b() for _ in range(29)) / 29]", "a warm-up belongs"),
            Mistake('"a" if statistics.median(ratios) < 1 else "b"', '"b" if statistics.median(ratios) < 1 else "a"',
                    "on a quiet machine"),
        ),
        (('statistics.median(ratios) < 1', 'sum(r < 1 for r in ratios) > 14'),),
    ),
    "winners_curse": Mistakes(
        "figures that chose the winner praise it",
        (
            Mistake("return best, ", "return best, first[best]  # ", "figures that chose the winner"),
            Mistake("range(80))", "range(3))", "measure the winner more often"),
            Mistake("statistics.mean(measure(best) for _ in range(80))", "max(measure(best) for _ in range(80))",
                    "too high on average"),
            Mistake("range(80))", "range(100))", "160 are allowed"),
            Mistake("key=lambda k: first[k]", "key=lambda k: abs(first[k] - 1.2)", "slower than the best of the 40"),
        ),
    ),
}  # fmt: skip
