"""Chapter 8, 20 minutes: a model's mistake, by its features.

A linear model scores programs of a product by three of the columns that `ansor.features` gives: `parallel_prod`,
`B1.lines` and `B2.lines` (how many iterations run in parallel, how many lines of A and B are asked for). It is often
wrong; the check prints two programs of which it prefers the one that is several times slower. Look at what the two
loop nests differ in, and name one further column (`ansor.features.SCHEMA` has all, with their meaning) with which the
model orders unseen programs better by 6 points at least, and these two right.
"""

MISSING = ...
