"""isrlab: how Apache Kafka keeps replicas in sync, version by version.

This package is the machine: the rules, a world around them, fleets, queries, pictures and reports.
Logs and `check` are in isrlab_ops, search and Kafka's own classes in isrlab_proof, the notebooks'
code, the explorer and the exercises in isrlab_book.

Play it
  play           plays a scenario, which is text, by the rules of any release: play("partition ...")
  KafkaVersion   one release and its rules: KafkaVersion.of("2.5")
  rules          the rules, short functions with their source in Kafka's code
  rule           the lines of a function, as a notebook shows them: rule(rules.is_out_of_sync)
Look at it
  plot_replicas  a picture of the logs of all replicas at one moment: plot_replicas(run.frames[-1])
  step_slider    a slider through every step of a run: step_slider(run)
Measure it
  fleet          thousands of partitions under load: fleet.simulate_local(fleet.FleetConfig())
  events         the one table that simulations and the readers of logs write
  churn          queries on that table, with Spark
  spark          a Spark session: spark.session()
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"
_OBJECTS = {
    "play": "world.scenario", "KafkaVersion": "engine.versions", "rule": "show.rule",
    "plot_replicas": "show.replicas", "step_slider": "show.controls",
}  # fmt: skip
_MODULES = {
    "rules": "engine.rules", "fleet": "", "events": "", "churn": "", "spark": "",
}  # fmt: skip
__all__ = [*_OBJECTS, *_MODULES]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Import a name on its first use: Spark, numba and matplotlib take seconds."""
    if name in _MODULES:
        return import_module(f"isrlab.{_MODULES[name] or name}")
    if name in _OBJECTS:
        return getattr(import_module(f"isrlab.{_OBJECTS[name]}"), name)
    raise AttributeError(f"isrlab has no {name!r}; it has {', '.join(__all__)}")
