"""The settings of a simulated fleet: one frozen record of checked numbers with units."""

from __future__ import annotations

import contextlib
import json
import shlex
from collections.abc import Iterable
from dataclasses import Field, asdict, dataclass, field, fields, replace
from typing import Any, cast

from isrlab.engine.choices import IsrWrite
from isrlab.engine.rules import effective_min_isr, isr_check_period_ms
from isrlab.engine.versions import KafkaVersion
from isrlab.events.wording import counted
from isrlab.fleet.given import pauses_of, replicas_of
from isrlab.fleet.kernel.state import Links, Rules

LOADS: dict[str, str] = {
    "steady": "batches at random times, and nothing else",
    "bursts": "also bursts, of each partition on its own",
    "heavy": "bursts of very different height: most low, few up to fifty times as high",
    "together": "bursts that hit many partitions of the cluster at the same moment",
}
TRACE = "trace"  # load read from `trace_file` rather than random
NO_MESSAGE_LIMIT = 2**62
MOST_RECORDS = 10**9  # counts of records in a batch have 32 bits
DAY_MINUTES = 1440.0


def _number(default: Any, unit: str, low: float, high: float, meaning: str) -> Any:
    limits = {"unit": unit, "low": low, "high": high}
    return field(default=default, metadata=limits | {"meaning": meaning})


def _text(default: str, meaning: str) -> Any:
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True)
class FleetConfig:
    """A cluster under load for some minutes. A limit of None is the default of the version.

    Each field's metadata has its `meaning`, and for numbers `unit`, `low` and `high`. Kafka's
    settings keep their names, with underscores.

    Raises ValueError, which names the offending value and the valid range.
    """

    # fmt: off
    version: str = _text("0.8.2", "Kafka version whose rules apply")
    name: str = _text("", "name of the run in the events, column `run`; empty: the version")
    partitions: int = _number(1_000, "partitions", 1, 1_000_000,
        "partitions of the one topic, whose leaders and followers take turns over the brokers")
    brokers: int = _number(3, "brokers", 2, 10_000, "brokers of the cluster")
    replication_factor: int = _number(3, "replicas", 2, 9,
        "replicas of each partition, including the leader")
    assigned: str = _text("", "replicas of each partition, its leader first: '1,2,3 3,1,2'")
    minutes: float = _number(60.0, "minutes", 0.01, 14 * DAY_MINUTES, "how long the fleet runs")
    seed: int = _number(1, "", 0, 2**63 - 1, "seed of all random draws")

    replica_lag_time_max_ms: int | None = _number(None, "ms", 1, 86_400_000,
        "a follower that has not been caught up for longer leaves the ISR")
    replica_lag_max_messages: int | None = _number(None, "records", 0, 2**53,
        "a follower that lacks more at an isr-expiration check leaves the ISR (up to 0.8.2)")
    min_insync_replicas: int = _number(1, "replicas", 1, 9,
        "with fewer replicas in the ISR, produces with acks=all are refused")
    num_replica_fetchers: int = _number(1, "threads for each pair of brokers", 1, 64,
        "threads from each broker to each leader, which share its partitions")
    replica_fetch_max_bytes: int = _number(1_048_576, "bytes", 1, 2**31 - 1,
        "limit for one partition in one response")
    replica_fetch_response_max_bytes: int = _number(10_485_760, "bytes", 1, 2**31 - 1,
        "limit for one response")
    replica_fetch_wait_max_ms: int = _number(500, "ms", 1, 60_000,
        "how long a leader parks a fetch that finds too little")
    replica_fetch_min_bytes: int = _number(1, "bytes", 1, 2**31 - 1,
        "how much a fetch must find to be answered immediately")

    load: str = _text("bursts", "steady, bursts, heavy, together, or trace")
    records_per_s: float = _number(5.0, "records/s", 0, 1e6, "mean of a partition, outside bursts")
    batch_every_ms: int = _number(1_000, "ms", 1, 3_600_000, "mean gap of batches (exponential)")
    batch_size: int = _number(0, "bytes, 0: as drawn", 0, 2**31 - 1,
        "limit for a producer's batch; the records of a burst then arrive evenly, every ms")
    linger_ms: int = _number(0, "ms", 0, 3_600_000,
        "how long a producer waits for more records (with batch_size)")
    record_bytes: int = _number(500, "bytes", 1, 1_000_000, "size of every record")
    burst_records: int = _number(30_000, "records", 0, 10**8,
        "records of a burst; with load=heavy, their mean")
    burst_s: float = _number(1.0, "s", 0, 3_600,
        "length of a burst, which has a batch every 10 ms; 0: one batch")
    burst_every_s: float = _number(1_800.0, "s", 1, 86_400 * 14,
        "mean time between bursts of a partition (exponential)")
    burst_share: float = _number(0.3, "share", 0, 1,
        "share of the partitions that a common burst hits (load=together)")
    hot_partitions: int = _number(0, "partitions", 0, 1_000_000,
        "this many partitions, from the first on, get more load outside bursts")
    hot_times: float = _number(10.0, "times as many records", 0, 1e6,
        "load of a hot partition, as a multiple of the load of others")
    daily_swing: float = _number(0.0, "share", 0, 1,
        "how far load is above its mean at 15:00 UTC, and below it at 03:00; runs begin at 00:00")

    trace_file: str = _text("", "recorded load: CSV, CSV.GZ or Parquet (load=trace)")
    trace_columns: str = _text("", "columns of the trace to read, if their names do not show it")

    acks_all_share: float = _number(1.0, "share", 0, 1,
        "share of the partitions whose producers use acks=all; the others use acks=1")
    request_timeout_ms: int = _number(30_000, "ms", 1, 3_600_000,
        "after this time a produce that waits for the ISR fails")
    delivery_timeout_ms: int = _number(120_000, "ms of retries, 0 for none", 0, 86_400_000,
        "how long a refused produce is retried")

    fetch_latency_ms: int = _number(2, "ms", 1, 60_000, "one-way delay between brokers")
    follower_bytes_per_s: int = _number(10_000_000, "bytes/s for each thread", 1, 10**12,
        "what a fetcher thread can receive and write")
    follower_spread: float = _number(0.2, "share", 0, 0.9,
        "the speeds of brokers are drawn evenly, up to this share lower or higher")
    stall_s: float = _number(20.0, "s", 0, 86_400,
        "how long a broker's fetchers stall (a hanging disk, say); its session lives")
    stall_every_s: float = _number(3_600.0, "s", 1, 86_400 * 14,
        "mean time between these stalls (exponential)")
    stall_speed: float = _number(0.0, "share", 0, 1,
        "0: stalled fetchers fetch nothing; 0.5: they work at half speed")
    leader_bytes_per_s: int = _number(0, "bytes/s to all followers, 0 for no limit", 0, 10**12,
        "what a leader can send; its link is shared equally by the threads with work")
    link_bytes_per_s: int = _number(0, "bytes/s between two brokers, 0 for no limit", 0, 10**12,
        "what a leader can send to each follower, whose threads share it equally")
    leader_stall_s: float = _number(0.0, "s", 0, 86_400,
        "how long a stalled leader answers no fetch")
    leader_stall_every_s: float = _number(3_600.0, "s", 1, 86_400 * 14,
        "mean time between stalls of a leader (exponential)")
    restart_s: float = _number(0.0, "s", 0, 86_400,
        "rolling restart: how long each broker is down (only as a follower)")
    restart_every_s: float = _number(600.0, "s", 1, 86_400 * 14,
        "time from one broker's restart to the next, and to the first")
    pauses: str = _text("", "faults at given times: 'fetchers 2 15-30, down 3 40-60' (s)")
    new_broker: int = _number(0, "broker, 0 for none", 0, 10_000,
        "a broker whose replicas begin empty, outside the ISR")
    backlog_records: int = _number(0, "records", 0, 10**12, "records in every log at the start")
    isr_commit_ms: int = _number(10, "ms", 1, 3_600_000,
        "from the request for an ISR change until the change is stored")
    # fmt: on

    def __post_init__(self) -> None:
        object.__setattr__(self, "trace_file", str(self.trace_file))  # JSON has no Path
        KafkaVersion.of(self.version)
        pauses_of(self.pauses)
        for item in fields(self):
            object.__setattr__(self, item.name, _checked(item, getattr(self, item.name)))
        for is_wrong, problem in _problems(self):
            if is_wrong:
                raise ValueError(problem)

    @property
    def run(self) -> str:
        return self.name or self.version

    @property
    def duration_ms(self) -> int:
        return round(self.minutes * 60_000)

    @property
    def kafka(self) -> KafkaVersion:
        return KafkaVersion.of(self.version)

    @property
    def lag_time_ms(self) -> int:
        return self.replica_lag_time_max_ms or self.kafka.replica_lag_time_max_ms

    @property
    def lag_messages(self) -> int | None:
        """replica.lag.max.messages, as set or by default; None in releases without it."""
        default, given = self.kafka.replica_lag_max_messages, self.replica_lag_max_messages
        return default if default is None or given is None else given

    @property
    def isr_check_period_ms(self) -> int:
        """How often the isr-expiration task runs."""
        return isr_check_period_ms(self.lag_time_ms, self.kafka.isr_checks_per_lag_time)

    def with_(self, **changes: Any) -> FleetConfig:
        """This fleet with some settings changed."""
        known = [item.name for item in fields(self)]
        if unknown := sorted(set(changes) - set(known)):
            raise ValueError(f"unknown setting {unknown[0]!r}; known: {', '.join(known)}")
        return replace(self, **changes)

    def rules(self) -> Rules:
        """The version's choices in the kernel's form."""
        kafka, messages = self.kafka, self.lag_messages
        derived: dict[str, Any] = {
            "waits_for_controller": kafka.isr_write >= IsrWrite.ALTER_ISR,
            "fetches_after_removal": kafka.kraft,
            "shrink_raises_leader_epoch": kafka.kraft and kafka.epoch_bump_on_isr_shrink,
            "replica_lag_time_max_ms": self.lag_time_ms,
            "replica_lag_max_messages": NO_MESSAGE_LIMIT if messages is None else messages,
            "min_isr": self.min_isr(self.replication_factor),
        }
        others = [name for name in Rules._fields if name not in derived]
        derived |= {n: getattr(self if hasattr(self, n) else kafka, n) for n in others}
        numbers = {n: v if isinstance(v, bool) else int(v) for n, v in derived.items()}
        return Rules(**cast("dict[str, Any]", numbers))

    def min_isr(self, replicas: int) -> int:
        """The min ISR for this many replicas; from 3.7 on, at most their number."""
        if not self.kafka.high_watermark_held_under_min_isr:
            return self.min_insync_replicas
        return effective_min_isr(self.min_insync_replicas, replicas)

    def links(self) -> Links:
        """The network in the kernel's form."""
        links = Links(*(getattr(self, name) for name in Links._fields))
        most_bytes = min(links.replica_fetch_min_bytes, links.replica_fetch_response_max_bytes)
        return links._replace(replica_fetch_min_bytes=most_bytes)

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> FleetConfig:
        return cls(**json.loads(text))


Configs = FleetConfig | Iterable[FleetConfig]


def versions(config: FleetConfig, names: Iterable[str]) -> list[FleetConfig]:
    """One fleet, load and seed under several Kafka versions; each run is named for its version.

    Of releases with the same rules only the first is kept.
    """
    first: dict[str, FleetConfig] = {}
    for name in names:
        first.setdefault(KafkaVersion.of(name).name, config.with_(version=name, name=""))
    return list(first.values())


def sweep(configs: Configs, setting: str, values: Iterable[Any]) -> list[FleetConfig]:
    """Each fleet once for each value of one setting; runs are named "0.8.2 burst_records=5000"."""
    return [
        config.with_(**{setting: value, "name": f"{config.run} {setting}={value}"})
        for config in listed(configs)
        for value in values
    ]


def settings(text: str) -> dict[str, Any]:
    """Settings by name, from "num_replica_fetchers=2 load=together", with numbers converted.

    Raises ValueError for a part that is not NAME=VALUE; `with_` checks names and ranges.
    """
    given: dict[str, Any] = {}
    for part in shlex.split(text):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(f"{part!r} is not a setting; valid: NAME=VALUE, such as brokers=6")
        given[name] = None if value == "None" else value
        for kind in (float, int):
            with contextlib.suppress(ValueError):
                given[name] = kind(value)
    return given


def listed(configs: Configs) -> list[FleetConfig]:
    """One fleet or several, as a list of several; raises ValueError if two runs share a name."""
    several = [configs] if isinstance(configs, FleetConfig) else list(configs)
    names = [config.run for config in several]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"two runs are named {twice[0]!r}; give each FleetConfig its own name")
    return several


def _problems(config: FleetConfig) -> list[tuple[bool, str]]:
    """Possible contradictions between settings: (whether there is one, message)."""
    loads, brokers, partitions = [*LOADS, TRACE], config.brokers, config.partitions
    load, file, hot = config.load, config.trace_file, config.hot_partitions
    largest = config.records_per_s * config.batch_every_ms / 1000 * (1 + config.daily_swing)
    largest *= config.hot_times if hot else 1
    copies = config.replication_factor
    batches = f"batches of {largest:,.0f} records (records_per_s, batch_every_ms, hot_times)"
    pair = f"load={load!r} with trace_file={file!r}; "
    pair += "valid: load='trace' with a file, or another load without"
    needs = f"replication_factor={copies} needs as many brokers; valid: 2 to brokers={brokers}"
    linger_ms, size = config.linger_ms, config.batch_size
    lingers = f"linger_ms={linger_ms} and batch_size={size} with load={load!r}; "
    lingers += "valid: linger_ms with a batch_size, and both with a load that is drawn"
    too_hot = f"hot_partitions={hot} is out of range; valid: 0 to partitions={partitions}"
    misplaced = _misplaced(config, replicas_of(config.assigned))
    both = f"leader_bytes_per_s={config.leader_bytes_per_s:,} with "
    both += f"link_bytes_per_s={config.link_bytes_per_s:,}; valid: one of them, the other 0"
    return [
        (config.leader_bytes_per_s > 0 and config.link_bytes_per_s > 0, both),
        (bool(misplaced), misplaced),
        (load not in loads, f"unknown load {load!r}; known: {', '.join(loads)}"),
        (copies > brokers, needs),
        (hot > partitions, too_hot),
        (largest > MOST_RECORDS, f"{batches} are too large; valid: up to {MOST_RECORDS:,}"),
        ((load == TRACE) != bool(file), pair),
        (size > 0 if load == TRACE else linger_ms > 0 and not size, lingers),
    ]


def _misplaced(config: FleetConfig, given: list[list[int]]) -> str:
    """The message about an error in the given replicas, or ""."""
    copies, brokers = config.replication_factor, config.brokers
    fits = [len({*each}) == copies and min(each) >= 1 and max(each) <= brokers for each in given]
    if not given or (len(given) == config.partitions and all(fits)):
        return ""
    valid = f"partitions={config.partitions:,}, each on replication_factor={copies} brokers"
    lists = counted(len(given), "partition")
    return f"assigned lists {lists}; valid: {valid}, from 1 to {brokers}"


def _checked(item: Field[Any], value: Any) -> Any:
    """The value, as an integer if the field is one; raises ValueError outside the limits."""
    limits = item.metadata
    if "low" not in limits or (value is None and item.default is None):
        return value
    low, high, unit = limits["low"], limits["high"], limits["unit"]
    valid = f"valid: {low:,} to {high:,}{f' {unit}' if unit else ''}"
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not is_number or not low <= value <= high:
        raise ValueError(f"{item.name}={value!r} is out of range; {valid}")
    if isinstance(item.default, float):
        return value
    if value != int(value):
        raise ValueError(f"{item.name}={value!r} is not a whole number; {valid}")
    return int(value)
