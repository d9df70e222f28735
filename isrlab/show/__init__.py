"""Pictures by concept. One concept is drawn one way, in every notebook.

replicas   the logs of all replicas at one moment, and a scenario block by block; an engine's run
           and real brokers, side by side
messages   messages between machines: arrows between lanes, time downwards
offsets    log end offsets, high watermark and ISR in time
bands      states over time, a row each: an ISR, absences, requests that wait
matrix     a word for each schedule (row) in each version (column)
curves     lines with bands, bars, ticks, points
table      DataFrames as escaped HTML
version_table  every generation of the rules, as Markdown
membership  one follower in and out of the ISR, a row for each run
rule       the source of the rules that decide
player     pictures that a reader moves through without a kernel
controls   a slider through a run; any figure redrawn as values change
colours    of brokers, versions and states
svg        shapes, text and panels: what replicas and messages are drawn with, without matplotlib
style      titles, numbers, names: one look for every figure

A picture is given tables, runs and numbers, and plays nothing. Its title is the finding, worded
where the numbers are. What only one notebook draws is in its workbook file.
"""
