"""Chapter 10: networks and the task scheduler."""

from . import Mistake, Mistakes

MISTAKES = {
    "memory_plan": Mistakes(
        "every tensor has a place of its own",
        (
            Mistake(
                "f <= last and first <= until",
                "f < last and first < until",
                "the kernel that reads one writes the other",
            ),
            Mistake("-(-end // 64) * 64", "end", "no multiple of 64"),
            Mistake("        offsets[t] = place\n", "", "share memory"),
            Mistake("if f <= last and first <= until", "if True", "every tensor has a place of its own"),
            Mistake("            if place + size <= begin:\n                break\n", "", "look for gaps"),
        ),
    ),
    "next_task": Mistakes(
        "many rounds go to tasks that gain nothing",
        (
            Mistake("weights[t] * (history[-2] - history[-1])", "history[-2] - history[-1]", "weights included"),
            Mistake("weights[t] * (history[-2] - history[-1])", "weights[t] * history[-1]", "tasks that gain nothing"),
            Mistake('return float("inf")', "return 0.0", "never got a round"),
            Mistake("return max(", "return -1 + 0 * max(", "a task's number is 0 to 5"),
        ),
    ),
}
