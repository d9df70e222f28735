"""From log lines to a history: one clock, each stored change once, gaps, and contradictions."""

from isrlab_ops.logs.history.history import History, history_of

__all__ = ["History", "history_of"]
