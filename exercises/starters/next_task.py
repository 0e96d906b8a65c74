"""Chapter 10, 30 minutes: which task is tuned next.

A network has six tasks. `histories[t]` has the best latency of task t after each of its rounds, the first entry being
the untuned program; `weights[t]` says how often the network runs it. `next_task` gives the number of the task that
gets the next round. After 60 rounds the sum of weight * latency must have come at least 85 percent of the way from
what round robin reaches to what the best division of the rounds, known in hindsight, does.

Every task gains less with every round, each at a pace of its own; some have nothing to gain.
"""


def next_task(histories, weights):
    rounds = [len(history) - 1 for history in histories]
    return rounds.index(min(rounds))  # round robin: fair, and wasteful ...
