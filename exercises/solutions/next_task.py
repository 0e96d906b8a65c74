"""Two rounds each; then the task whose last round brought most for the whole."""


def next_task(histories, weights):
    def promise(t):
        history = histories[t]
        if len(history) < 3:
            return float("inf")
        return weights[t] * (history[-2] - history[-1])

    return max(range(len(histories)), key=promise)
