"""The one table that every producer writes, and what its rows mean."""

from isrlab.events.schema import COLUMNS, DETAIL, KINDS, SCHEMA, spark_schema, table

__all__ = ["COLUMNS", "DETAIL", "KINDS", "SCHEMA", "spark_schema", "table"]
