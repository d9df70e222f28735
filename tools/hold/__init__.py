"""Checks whether the notebooks' sentences hold at other seeds, settings and releases.

Theory of operation. A row of `data/hold/claims.toml` is a claim: the sentence as its notebook has
it, a measure (a function of `measured.py`), and the range that the sentence claims: generations,
values of each parameter that it does not name (the first is the notebook's), seeds. A **cell** is
one run: the measure in one generation with one value of each parameter and one seed. Without seeds
every generation meets every value; with seeds one thing at a time differs from the base.

`holds` says what must be true of each cell's result `x`. `on_average` is for results that are
paired over the seeds, such as evictions with one setting less those with another: it sees the
median, the `total`, and `low` and `high`, an interval of the median that covers 95 % whatever the
distribution (of ten values the second smallest to the second largest: 97.9 %).

Results are kept cell by cell, so a run that was interrupted goes on; in which parts it ran does not
show. `make hold` runs what is missing, and writes `data/hold/verdicts.csv`, which notebooks show.

    claims.py     the table, and its cells
    measured.py   what is measured
    results.py    what is kept; verdicts
"""
