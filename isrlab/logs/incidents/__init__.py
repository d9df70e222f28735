"""Incidents in clean events: what happened, who did it, whether it is over, what shows it."""

from isrlab.logs.incidents.find import Incident, IncidentLine, find

__all__ = ["Incident", "IncidentLine", "find"]
