"""From lines to a history: one clock, each stored change once, gaps, and what cannot be."""

from isrlab.logs.history.history import History, history_of

__all__ = ["History", "history_of"]
