"""Incidents in clean events: what happened, who is to blame, whether it is over, and what shows it."""

from isrlab.incidents.find import Incident, Line, find

__all__ = ["Incident", "Line", "find"]
