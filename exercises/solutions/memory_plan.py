"""Large ones first, each in the lowest gap between those that live at the same time."""


def plan(requests):
    offsets = [0] * len(requests)
    placed = []
    for t in sorted(range(len(requests)), key=lambda t: -requests[t][0]):
        size, first, last = requests[t]
        place = 0
        for begin, end in sorted((b, e) for b, e, f, until in placed if f <= last and first <= until):
            if place + size <= begin:
                break
            place = max(place, -(-end // 64) * 64)
        offsets[t] = place
        placed.append((place, place + size, first, last))
    return offsets
