"""isrlab: how Apache Kafka keeps replicas in sync, version by version.

Play it
  play           plays a scenario, which is text, by the rules of any release: play("partition ...")
  search         looks for schedules that break a promise, at random or exhaustively
  KafkaVersion   one release and its rules: KafkaVersion.of("2.5")
  rules          the rules, short functions with their source in Kafka's code
  rule           the lines of a function, as a notebook shows them: rule(rules.is_out_of_sync)
Look at it
  plot_replicas  a picture of the logs of all replicas at one moment: plot_replicas(run.frames[-1])
  step_slider    a slider through every step of a run: step_slider(run)
Measure it
  reader         reads the logs of real brokers: reader.read_local(folder)
  incidents      what happened in them, and which broker caused it
  fleet          thousands of partitions under load: fleet.simulate_local(fleet.FleetConfig())
  placement      replicas as kafka-topics --describe shows them
  events         the one table that simulations and the readers of logs write
  churn          queries on that table, with Spark
  spark          a Spark session: spark.session()
  judged         what Kafka's own classes showed, beside the engine

In a notebook, `%load_ext isrlab` brings cells that begin with `%%scenario` or `%%exercise`. Tab
completes what may stand there, `%%scenario?` lists the commands.
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
    "search": "", "rules": "engine.rules", "reader": "logs.reader", "incidents": "logs.incidents",
    "fleet": "", "placement": "", "events": "", "churn": "", "spark": "", "judged": "",
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


def load_ipython_extension(shell: Any) -> None:
    """`%load_ext isrlab` brings the cell magics `%%scenario` and `%%exercise`."""
    import_module("isrlab.magic").load_ipython_extension(shell)
