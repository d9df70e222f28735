"""What Kafka's own classes showed, stored step by step, and the engine beside it.

`make judge` (tools/judge) plays random schedules on classes of Kafka's jars and on the engine;
what Kafka showed is kept in data/judged, and read here without Java:

    for run in judged.read("partition", "3.9.2"):
        for step in run.beside(KafkaVersion.of("3.9.2")):
            step.command, step.kafka, step.engine, step.differs

`judged.figures()` counts the stored steps by class and release; `judged.found()` are the
differences that were found, and mended, each with what shows it.
"""

from isrlab.judged.stored import (
    CLASSES,
    FOLDER,
    Compared,
    JudgedRun,
    figures,
    found,
    player,
    read,
    releases,
)

__all__ = [
    "CLASSES",
    "FOLDER",
    "Compared",
    "JudgedRun",
    "figures",
    "found",
    "player",
    "read",
    "releases",
]  # fmt: skip
