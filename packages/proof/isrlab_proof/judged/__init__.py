"""Recorded states of Kafka's own classes, step by step, for comparison with the engine's.

`make judge` (../judge) plays random schedules on classes of Kafka's jars and on the engine;
Kafka's states are stored in data/judged, and read here without Java:

    for run in judged.read("partition", "3.9.2"):
        for step in run.beside(KafkaVersion.of("3.9.2")):
            step.command, step.kafka, step.engine, step.differs

`judged.figures()` counts the stored steps by class and release; `judged.found()` lists the
differences that were found, each with a scenario that shows it, if there is one.
"""

from isrlab_proof.judged.stored import (
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
