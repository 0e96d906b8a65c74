"""Chapter 2, 20 minutes: a program is its list of steps.

A log stores steps, one short list each. Write those that turn the plain nest of a product (stage 2 of A, B, C; loops
i, j, k of 48, 32, 20) into this program:

    parallel i.0 (0,12)
      for j.0 (0,2)
        for k (0,20)
          for i.1 (0,4)
            vectorize j.1 (0,16)
              C = ...

A split is ["SP", stage, loop, extent, [inner lengths], 1], an order ["RE", stage, [loops, outermost first]], a mark
["AN", stage, loop, number] with 2 for vectorize and 3 for parallel. Loops are numbered as they stand when a step is
applied, so a split moves the numbers of those behind it.
"""


def steps():
    return [
        ["SP", 2, 0, 48, [4], 1],
        ...,
    ]
