"""Incidents in a history: what happened, which broker caused it, whether it is over."""

from isrlab_ops.logs.incidents.find import Incident, IncidentLine, find

__all__ = ["Incident", "IncidentLine", "find"]
