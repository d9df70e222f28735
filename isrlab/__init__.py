"""isrlab: how Apache Kafka keeps replicas in sync, version by version.

This package is the machine: the rules, a world around them, fleets, queries, pictures and reports.
Logs and `check` are in isrlab_ops, search and Kafka's own classes in isrlab_proof, the notebooks'
code, the explorer and the exercises in isrlab_book.

Six modules are public, as far as their `__all__` goes: this one, isrlab.fleet, isrlab.churn,
isrlab_ops, isrlab_proof and isrlab_book. What is to go raises a DeprecationWarning with its
successor for one release; everything else may change in any.

Play it
  play            plays a scenario, which is text, by any release's rules: play("partition ...")
  scenario        the stored scenarios, and the outcomes of a schedule in all generations
  KafkaVersion    one release and its rules: KafkaVersion.of("2.5"); PRESETS has those of the matrix
  choices         the forms that a rule has had: version.with_(eligibility=choices.Eligibility.ANY)
  decided         how a schedule's chance of a loss changes from step to step; mix_of reads a mix
Read it
  rules           the rules, short functions with their source in Kafka's code
  isr, kraft      the leader's part of an ISR change, and the KRaft controller's
  messages        what the machines send each other
  rule            the lines of a function, as a notebook shows them: rule(rules.is_out_of_sync)
Look at it
  plot_story      a scenario block by block: plot_story(run)
  plot_replicas   the logs of all replicas at one moment: plot_replicas(run.frames[-1])
  plot_beside     an engine's run and real brokers, side by side
  plot_messages   messages between machines; high_watermark_delays, how late followers learn of it
  plot_matrix     a word for each schedule in each release
  membership, offsets   one follower in and out of the ISR, and all log ends, in time
  step_slider     a slider through every step of a run: step_slider(run)
  table           rows as a table; counted, duration and finding word what a picture shows
  words           what a moment is in words
Measure it
  fleet           thousands of partitions under load: fleet.simulate_local(fleet.FleetConfig())
  events          the one table that simulations and the readers of logs write
  churn           queries on that table, with Spark
  spark           a Spark session: spark.session()
"""

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any

__version__ = "0.2.0"
_PLACES = {
    "play": "world.scenario:play", "scenario": "world.scenario", "words": "world.words",
    "decided": "world.decided:decided", "mix_of": "world.decided:mix_of",
    "KafkaVersion": "engine.versions:KafkaVersion", "PRESETS": "engine.versions:PRESETS",
    "choices": "engine.choices", "rules": "engine.rules", "isr": "engine.isr",
    "kraft": "engine.kraft", "messages": "engine.messages", "rule": "show.rule:rule",
    "plot_story": "show.replicas:plot_story", "plot_replicas": "show.replicas:plot_replicas",
    "plot_beside": "show.replicas:plot_beside", "finding": "show.replicas:finding",
    "plot_messages": "show.messages:plot_messages", "plot_matrix": "show.matrix:plot_matrix",
    "high_watermark_delays": "show.messages:high_watermark_delays", "offsets": "show.offsets",
    "membership": "show.membership", "step_slider": "show.controls:step_slider",
    "table": "show.table:table", "counted": "show.style:counted", "duration": "show.style:duration",
    "fleet": "fleet", "events": "events", "churn": "churn", "spark": "spark",
}  # fmt: skip
__all__ = [*_PLACES]


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def exports(package: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package: from a name to "module:name" below the package.

    A name is imported on its first use, since Spark, numba and matplotlib take seconds.
    """

    def __getattr__(name: str) -> Any:
        if name in places:
            return resolve_name(f"{package}.{places[name]}")
        raise AttributeError(f"{package} has no {name!r}; it has {', '.join(places)}")

    return __getattr__


__getattr__ = exports(__name__, _PLACES)
