"""After the first split the loops are i.0, i.1, j, k: j is number 2."""


def steps():
    return [
        ["SP", 2, 0, 48, [4], 1],
        ["SP", 2, 2, 32, [16], 1],
        ["RE", 2, [0, 2, 4, 1, 3]],
        ["AN", 2, 0, 3],
        ["AN", 2, 4, 2],
    ]
