"""Checks whether the notebooks' sentences hold at other seeds, settings and releases.

Theory of operation. A row of `data/hold/claims.toml` is a claim: the sentence as its notebook has
it, a measure (a function of `measured.py`), and the range that the sentence claims: generations,
values of each parameter that it does not name (the first is the notebook's), seeds. A **cell** is
one run: the measure in one generation with one value of each parameter and one seed. Without seeds
every generation is run with every value; with seeds one thing at a time differs from the base.

`holds` is the condition for each cell's result `x`. `on_average` is for results that are paired
over the seeds, such as evictions with one setting minus those with another: it uses `median`,
`total`, and `low` and `high`, a 95 % confidence interval of the median for any distribution (of ten
values the second smallest to the second largest: 97.9 %).

Results are stored cell by cell, so an interrupted run can be continued, with the same results.
`make hold` runs the missing cells, and writes `data/hold/verdicts.csv`, which notebooks show.

    claims.py     the table, and its cells
    measured.py   the measures
    results.py    the stored results, and verdicts
"""
