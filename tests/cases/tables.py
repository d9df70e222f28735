"""Rows of events as a DataFrame, and a DataFrame against the rows it should have."""

from __future__ import annotations

from pyspark.testing import assertDataFrameEqual

from isrlab.events import schema


def frame(spark, rows):
    """Events, given as rows that leave out what is null."""
    return spark.createDataFrame(schema.table(rows))


def same(found, rows, columns):
    """Fail unless these columns of `found` (names apart by blanks) hold these rows."""
    chosen = found.select(*columns.split())
    assertDataFrameEqual(chosen, chosen.sparkSession.createDataFrame(rows, chosen.schema))
