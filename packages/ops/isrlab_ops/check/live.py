"""The state of a live cluster, through read-only clients: extra `live`.

confluent-kafka requests the brokers, the metadata of all topics, and the settings of topics and
brokers; it cannot describe the quorum, which kafka-python does. Options of Kafka's own tools
(--command-config) become those of both. Neither client can request reassignments in progress or
eligible leader replicas; kafka-topics can.
"""

import logging
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from isrlab.engine.versions import KafkaVersion
from isrlab.events.wording import counted
from isrlab.installed import require
from isrlab_ops.check import quorum
from isrlab_ops.check.cluster import CheckError, ClusterState, possible_versions
from isrlab_ops.check.describe import DescribedPartition
from isrlab_ops.logs.incidents.exposed import UNCLEAN
from isrlab_ops.logs.reader.metadata.log import MIN_ISR

SAME = re.compile(r"security\.protocol|sasl\.mechanism|ssl\.(ca|key|certificate)\.[a-z.]+|"
                  r"ssl\.keystore\.(location|password)|ssl\.key\.password")  # fmt: skip
ZOOKEEPER = "zookeeper.connect"
PROTOCOL = "inter.broker.protocol.version"  # not a broker setting from 4.0 on
KEPT = re.compile("|".join(
    [*map(re.escape, (MIN_ISR, UNCLEAN, PROTOCOL, ZOOKEEPER)),
     r".*throttled\.(?:rate|replicas)|(?:cordoned\.)?log\.dirs?"]
))  # fmt: skip
UNSEEN = ("reassignments on their way and eligible leader replicas (kafka-topics --describe shows "
          "both), topics that this client may not describe")  # fmt: skip
ALIKE = {"security.protocol": "security_protocol", "sasl.mechanism": "sasl_mechanism",
         "sasl.username": "sasl_plain_username", "sasl.password": "sasl_plain_password",
         "ssl.ca.location": "ssl_cafile", "ssl.certificate.location": "ssl_certfile",
         "ssl.key.location": "ssl_keyfile", "ssl.key.password": "ssl_password"}  # fmt: skip
SettingValues = dict[str, tuple[str, bool]]  # values, and whether each is the default


def options_of(text: str) -> dict[str, str]:
    """The options of librdkafka for a properties file of Kafka's tools. Raises CheckError."""
    lines = (line.strip() for line in text.splitlines())
    pairs = (line.partition("=") for line in lines if line and line[0] not in "#!")
    given = {name.strip(): value.strip() for name, _, value in pairs}
    options = {name: value for name, value in given.items() if SAME.fullmatch(name)}
    if jaas := given.get("sasl.jaas.config"):
        login = dict(re.findall(r'\b(username|password)\s*=\s*"([^"]*)"', jaas))
        if len(login) < 2:
            raise CheckError("--command-config: sasl.jaas.config has no username and password")
        options |= {f"sasl.{name}": value for name, value in login.items()}
    if trusted := given.get("ssl.truststore.location"):
        if given.get("ssl.truststore.type", "JKS").upper() != "PEM":
            raise CheckError("--command-config: the truststore must be PEM (ssl.truststore.type)")
        options["ssl.ca.location"] = trusted
    if given.get("ssl.endpoint.identification.algorithm") == "":
        options["ssl.endpoint.identification.algorithm"] = "none"
    return options


def of_cluster(
    servers: str, config: Path | None = None, version: str | None = None, limit_s: float = 15
) -> ClusterState:
    """The state as the brokers report it. Raises CheckError if they do not within the limit."""
    require("live")
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    errors: list[str] = []
    options: dict[str, Any] = {
        "client.id": "isrlab-check", "log_level": 0, "bootstrap.servers": servers,
    }  # fmt: skip
    options |= options_of(config.read_text(encoding="utf-8")) if config else {}
    try:
        admin = AdminClient({**options, "error_cb": lambda error: errors.append(error.str())})
        try:
            return _state(admin, version, limit_s, lambda: _quorum(options, limit_s))
        finally:
            admin.poll(0)  # reports errors
    except CheckError:
        raise
    except (KafkaException, TimeoutError, ValueError) as error:
        texts = (each.str() if hasattr(each, "str") else str(each) for each in error.args)
        reason = " ".join([*errors, *texts, "no answer"][0].split())[:240]
        limit = f"within {limit_s:g} s (--timeout)"
        raise CheckError(f"{servers} gave no complete answer {limit}: {reason}") from None


def _state(
    admin: Any, version: str | None, limit_s: float, voters: Callable[[], DescribedPartition | None]
) -> ClusterState:
    topics = admin.list_topics(timeout=limit_s).topics.values()
    nodes = admin.describe_cluster(request_timeout=limit_s).result(limit_s).nodes
    up = {node.id: node.rack or "" for node in nodes}
    brokers = _settings(admin, "BROKER", map(str, up), limit_s)
    own = _settings(admin, "TOPIC", [topic.topic for topic in topics], limit_s)
    unsure = [f"topic {t.topic} is not shown: {t.error}" for t in topics if t.error is not None]
    if hidden := len(up) - len(brokers):
        unsure.append(f"this client may not see the settings of {counted(hidden, 'broker')}")
    partitions = []
    for topic in topics:
        values = own.get(topic.topic, {})
        least, unclean = (values.get(name, ("", True))[0] for name in (MIN_ISR, UNCLEAN))
        partitions += [
            DescribedPartition(
                topic.topic, p.id, p.leader, tuple(p.replicas), tuple(p.isrs),
                min_isr=int(least) if least.isdecimal() else None,
                unclean=unclean == "true" if unclean else None,
            )
            for p in topic.partitions.values()
        ]  # fmt: skip
    if not partitions:
        raise CheckError("this cluster shows no topic: there is none, or no permission for any")
    racks = dict.fromkeys(sorted({b for p in partitions for b in p.replicas}), "") | up
    settings = {(f"broker {name}", key): value for name, values in brokers.items()
                for key, (value, is_default) in values.items() if not is_default}  # fmt: skip
    settings |= {(topic, key): value for topic, values in own.items()
                 for key, (value, _) in values.items() if "throttled" in key and value}  # fmt: skip
    keepers = [values.get(ZOOKEEPER, ("", True))[0] for values in brokers.values()]
    return ClusterState(
        "answers of the brokers", sorted(partitions), racks, frozenset(up),
        _versions(brokers, version), settings, shows_moves=False,
        is_kraft=not any(keepers) if keepers else None, unsure=tuple(unsure[:3]), unseen=UNSEEN,
        quorum=None if any(keepers) else voters(),
        cordoned=frozenset(int(name) for name, values in brokers.items() if _is_cordoned(values))
        if len(brokers) == len(racks) else None,
    )  # fmt: skip


def _is_cordoned(values: SettingValues) -> bool:
    """Whether all log directories of a broker are cordoned (AbstractKafkaConfig.java 4.3.1)."""
    cordoned, many, single = ({*values.get(name, ("", True))[0].replace(" ", "").split(",")} - {""}
                           for name in ("cordoned.log.dirs", "log.dirs", "log.dir"))  # fmt: skip
    return "*" in cordoned or (bool(cordoned) and (many or single) <= cordoned)


def _quorum(options: dict[str, Any], limit_s: float) -> DescribedPartition | None:
    """The voters as the active controller describes them; None if it does not."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    logging.getLogger("kafka").addHandler(logging.NullHandler())  # it would print its retries
    given: dict[str, Any] = {ALIKE[name]: value for name, value in options.items() if name in ALIKE}
    if "ssl.endpoint.identification.algorithm" in options:
        given["ssl_check_hostname"] = False
    servers = options["bootstrap.servers"].split(",")
    try:
        client = KafkaAdminClient(
            bootstrap_servers=servers, bootstrap_timeout_ms=1000 * limit_s, **given
        )
        try:
            ((part,),) = (t["partitions"] for t in client.describe_metadata_quorum()["topics"])
        finally:
            client.close()
    except (KafkaError, OSError, ValueError):
        return None
    at = {v["replica_id"]: v.get("last_caught_up_timestamp", -1) for v in part["current_voters"]}
    now = at.get(part["leader_id"], -1)
    up = {b for b, ms in at.items() if ms >= 0 and now - ms <= quorum.BEHIND_MS}
    return quorum.of_voters(at, part["leader_id"], up) if at and not part["error"] else None


def _settings(
    admin: Any, kind: str, names: Iterable[str], limit_s: float
) -> dict[str, SettingValues]:
    """The relevant settings of those topics or brokers whose settings this client may see."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource, ResourceType

    known: dict[str, SettingValues] = {}
    asked = [ConfigResource(ResourceType[kind], name) for name in names]
    together = [[each] for each in asked] if kind == "BROKER" else [asked] * bool(asked)
    answers = [admin.describe_configs(group, request_timeout=limit_s) for group in together]
    for resource, answer in (pair for each in answers for pair in each.items()):
        try:
            entries = answer.result(limit_s)
        except KafkaException as error:
            if "AUTHORIZATION" not in error.args[0].name():
                raise
            continue
        kept = ((name, entry) for name, entry in entries.items() if KEPT.fullmatch(name))
        known[resource.name] = {n: (e.value or "", bool(e.is_default)) for n, e in kept}
    return known


def _versions(brokers: dict[str, SettingValues], version: str | None) -> tuple[KafkaVersion, ...]:
    """The possible releases: `version`, else the default of PROTOCOL, which exists up to 3.9."""
    values = [own[PROTOCOL] for own in brokers.values() if PROTOCOL in own]
    names = {value.partition("-")[0] for value, is_default in values if is_default}
    if version is None and names:
        return tuple(sorted({KafkaVersion.of(name) for name in names}, key=lambda v: v.first))
    return possible_versions(version, (4, 0) if brokers and not values else (0, 8, 2))
