"""Incidents in clean events: what happened, who did it, whether it is over, what shows it."""

from isrlab.incidents.find import Incident, Line, find

__all__ = ["Incident", "Line", "find"]
