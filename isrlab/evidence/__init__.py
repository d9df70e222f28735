"""From what brokers said to what is known: clocks put right, each stored change once, and gaps."""

from isrlab.evidence.reconcile import Evidence, reconcile

__all__ = ["Evidence", "reconcile"]
