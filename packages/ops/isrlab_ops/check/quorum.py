"""The voters of KRaft's controllers: a majority of them elects leaders and stores ISR changes.

Theory of operation. The quorum becomes a partition, `__cluster_metadata-0`: its replicas are the
voters, its ISR those that are up, its min ISR their majority, its leader the active controller. A
combined node is broker and voter. A partition without replicas means that no broker is a voter.

A voter that was last caught up `BEHIND_MS` (the default of controller.quorum.fetch.timeout.ms)
before the active controller's answer counts as down. Source: MetadataQuorumCommand, 3.3 to 4.4.
"""

import re
from collections.abc import Collection

from isrlab_ops.check.describe import DescribedPartition

TOPIC, BEHIND_MS = "__cluster_metadata", 2_000
NONE = DescribedPartition(TOPIC, 0, -1, (), (), min_isr=0)
SETTING = "controller.quorum.voters"
NOT_SHOWN = (
    "which nodes are the controllers' voters is not shown: --voters 1,2,3, or none if no "
    "broker is a controller; or add the output of kafka-metadata-quorum.sh describe"
)
BEHIND = "a voter is behind: kafka-metadata-quorum.sh describe --replication shows which"
_VOTERS = re.compile(re.escape(SETTING) + r"=(\d{1,9}@[^\s,]+(?:,\d{1,9}@[^\s,]+)*)?")
_STATUS = re.compile(r"(ClusterId|Leader(?:Id|Epoch)|HighWatermark|MaxFollowerLag(?:TimeMs)?|"
                     r"Current(?:Voters|Observers)): ?(.*)")  # fmt: skip
_HEAD = re.compile(r"NodeId .*LastCaughtUpTimestamp Status")
_NODE = re.compile(r"(\d{1,9})(?: \S{22})? -?\d+ -?\d+ -?\d+(?: ms ago)? (?P<ms>-?\d+)"
                   r"(?P<ago> ms ago)? (?P<role>Leader|Follower|Observer)")  # fmt: skip
_ID = re.compile(r'[\[,{] ?(?:"id": ?)?(\d{1,9})(?=[,}\]])')  # not a port in an endpoint


def of_voters(
    voters: Collection[int], leader: int = -1, up: Collection[int] | None = None
) -> DescribedPartition:
    """The quorum of these voters, of which all are up unless `up` is given."""
    live = tuple(sorted(b for b in voters if up is None or b in up))
    least = len(voters) // 2 + 1
    return DescribedPartition(TOPIC, 0, leader, tuple(sorted(voters)), live, min_isr=least)


def shown_in(text: str) -> tuple[DescribedPartition | None, frozenset[int], bool, str]:
    """The quorum that a text shows, the nodes of its table, whether a voter is behind, and the
    other lines. Raises ValueError for voters that are not whole, or contradict each other."""
    status, nodes, others, lists = dict[str, str](), list[re.Match[str]](), "", list[list[int]]()
    for raw in text.splitlines(keepends=True):
        line = " ".join(raw.split())
        if match := _STATUS.fullmatch(line):
            status[match[1]] = match[2]
        elif match := _NODE.fullmatch(line):
            nodes.append(match)
        elif match := _VOTERS.search(line):
            lists += [[*map(int, re.findall(r"(\d+)@", match[1] or ""))]]
        elif not _HEAD.fullmatch(line):
            others += raw
    lists += [[int(node[1]) for node in nodes if node["role"] != "Observer"]]
    lists += [[*map(int, _ID.findall(status.get("CurrentVoters", "")))]]
    leaders = {int(n[1]) for n in nodes if n["role"] == "Leader"}
    leaders |= {int(status["LeaderId"])} if status.get("LeaderId", "").isdecimal() else set()
    voters, lag = max(lists, key=len), status.get("MaxFollowerLagTimeMs", "0")
    if any(each and sorted(each) != sorted({*voters}) for each in lists):
        raise ValueError("the quorum has two lists of voters, or lists a voter twice")
    if (status or nodes) and (len(leaders) != 1 or not leaders <= {*voters}):
        raise ValueError("the quorum has no active controller, or two, or its text is cut")
    age = {int(n[1]): int(n["ms"]) * (1 if n["ago"] else -1) for n in nodes if n["ms"] != "-1"}
    now = age.get(min(leaders, default=-1), 0)
    up = {b for b, ms in age.items() if ms - now <= BEHIND_MS} if nodes else None
    quorum = of_voters(voters, min(leaders, default=-1), up) if voters else None
    is_behind = not nodes and not (lag.isdecimal() and int(lag) <= BEHIND_MS)
    return quorum, frozenset(int(node[1]) for node in nodes), is_behind, others
