"""Rows of events as a DataFrame, and a DataFrame against the rows it should have."""

from __future__ import annotations

from pyspark.testing import assertDataFrameEqual

from isrlab.events import schema

FULL = [1, 2, 3]


def event(ts_ms, kind, isr=None, before=None, **more):
    """A row of events, of broker 1 and partition 0 of run "r" unless it says otherwise."""
    row = {"run": "r", "ts_ms": ts_ms, "kind": kind, "broker": 1, "topic": "t", "partition": 0}
    return row | {"isr": isr, "isr_before": before} | more


def frame(spark, rows):
    """Events, given as rows that leave out what is null."""
    return spark.createDataFrame(schema.table(rows), schema.spark_schema())


def same(answer, rows, columns):
    """Fail unless these columns of `answer` (names separated by blanks) hold these rows."""
    chosen = answer.select(*columns.split())
    assertDataFrameEqual(chosen, chosen.sparkSession.createDataFrame(rows, chosen.schema))


def rows_of(answer):
    """All rows as plain text, sorted: equal iff the same rows."""
    return sorted(str(row) for row in answer.collect())
