"""isrlab for who runs Kafka: what happened to a cluster (logs), and what may be stopped (check).

look                 what happened, from a folder of logs: look("logs", min_isr=2).incidents
window               a time, a topic, a broker to ask about
rehearse, clock      a recording as `logs --follow` would report it, and its times as text
recording, known_outages   the folder of a recorded release, and when its brokers were down
recorded, operated, reassigned   what real brokers did: to a schedule, to an operator, to a move
"""

from isrlab import exports

_PLACES = {
    "look": "logs.incidents.look:look", "window": "logs.incidents.window:window",
    "rehearse": "logs.incidents.watch:rehearse", "clock": "logs.history.record:clock",
    "known_outages": "logs.recordings:known_outages", "recording": "logs.recordings:folder",
    "recorded": "recordings.recorded", "operated": "recordings.operated",
    "reassigned": "recordings.reassigned",
}  # fmt: skip
__all__ = [*_PLACES]
__getattr__ = exports(__name__, _PLACES)
