"""The verdict on some logs, and the state at their end: copies left, and refused writes."""

from collections import defaultdict
from collections.abc import Iterable

from isrlab.events.exact import Key
from isrlab.events.wording import counted
from isrlab_ops.logs.incidents.find import Incident
from isrlab_ops.logs.incidents.look import CALM, NOT_KNOWN, Findings
from isrlab_ops.logs.incidents.rules import TABLE

MOST_PARTITIONS = 8  # of a topic that are named


def title(findings: Findings) -> str:
    """The verdict, in two words at most."""
    if findings.exposures:
        return "EXPOSED"
    if findings.status in (CALM, NOT_KNOWN):
        unknown = "LOSS POSSIBLE" if findings.losses else "NOT KNOWN"
        return "CALM" if findings.status == CALM else unknown
    ends = findings.under_replicated or findings.under_min_isr or findings.leaderless
    if ends or any(not each.is_over for each in findings.incidents):
        return "WRONG NOW"
    return "RECORDS LOST"


def chief(findings: Findings) -> Incident:
    """The incident that the first lines are about."""

    def weight(each: Incident) -> tuple[bool, bool, int, bool, int]:
        is_fault = not TABLE.rule[each.what].several
        sizes = len(each.lost), is_fault, each.under_replicated_ms
        return not each.is_over, each.is_grave, *sizes

    return max(findings.incidents, key=weight)


def state(findings: Findings) -> str:
    """Sentences about the state at the end of the logs, and what is at risk."""
    total, dark = len(findings.partitions), findings.not_known
    if not total:
        after = " after the last deletion" if findings.record.rows["deleted"] else ""
        return f"No line tells of a partition{after}, so nothing is known of any replica."
    sentences = []
    for word, is_proved in (("Lost", True), ("Perhaps lost", False)):
        lost = [each for each in findings.losses if each.lost and each.is_proved == is_proved]
        times = f", in {counted(len(lost), 'incident')}" if len(lost) > 1 else ""
        sentences += [f"{word}: {loss_of(*lost)}{times}."] if lost else []
    if findings.leaderless:
        count, has = len(findings.leaderless), "has" if len(findings.leaderless) == 1 else "have"
        which = grouped(findings.leaderless, 2)
        sentences.append(f"{count:,} of {counted(total, 'partition')} {has} no leader: neither "
                         f"writes nor reads work there ({which}).")  # fmt: skip
    if short := findings.under_replicated:
        has = "has" if len(short) == 1 else "have"
        none = "" if findings.leaderless else ", none its leader"
        sentences.append(
            f"{len(short):,} of {counted(total, 'partition')} {has} lost a replica{none}."
        )
        sentences.append(_at_risk(findings))
    elif not findings.leaderless and not dark:
        every = "the partition has" if total == 1 else f"all {total:,} partitions have"
        every = f"As far as these lines show, {every}" if findings.doubts else every
        every = f"{every[0].upper()}{every[1:]} every replica in sync when the logs end"
        sentences.append(f"{every}{_refused(findings)}.")
    if dark:
        known = len({*findings.partitions} - {*dark})
        where = f"{counted(len(dark), 'partition')} ({grouped(dark, 2)})"
        others = f"; {known:,} are known." if known else "."
        sentences.append(f"No line tells which replicas are in sync in {where}{others}")
    return " ".join(sentences)


def loss_of(*incidents: Incident) -> str:
    """How many records of how many partitions were lost."""
    ranges = [lost for each in incidents for lost in each.lost]
    total = sum(lost.last - lost.first + 1 for lost in ranges)
    partitions = len({(lost.topic, lost.partition) for lost in ranges})
    return f"{counted(total, 'record')} of {counted(partitions, 'partition')}"


def _refused(findings: Findings) -> str:
    """In words, whether writes with acks=all are refused although every replica is in sync."""
    sizes = {key: len(findings.record.spans[key][-1].isr) for key in findings.partitions}
    few = [key for key, size in sizes.items() if (findings.settings.least(key) or 0) > size]
    if not few:
        return "; nothing refuses writes"
    where = f"{counted(len(few), 'partition')} with fewer replicas than min.insync.replicas"
    return f"; acks=all writes are refused in {where}"


def _at_risk(findings: Findings) -> str:
    """In words, the copies left, and whether writes with acks=all are refused."""
    record = findings.record
    sizes = {}
    for key in findings.under_replicated:
        span = record.spans[key][-1]
        sizes[key] = len(span.isr), len(record.held(key, span))
    left, full = min(sizes.values(), key=lambda size: (size[0], -size[1]))
    copies = f"{left} of {full} copies left"
    copies = copies if len({*sizes.values()}) == 1 else f"In the worst {copies}"
    least = {key: findings.settings.least(key) for key in sizes}
    if None in least.values():
        ask = f"acks=all writes are refused if min.insync.replicas is more than {left}"
        return f"{copies}: {ask}, which no line tells (--min-isr)."
    known = {key: (sizes[key][0], size) for key, size in least.items() if size is not None}
    refusing = [key for key, (size, least_size) in known.items() if size < least_size]
    if refusing:
        which = f"{counted(len(refusing), 'partition')} refuse{'s' * (len(refusing) == 1)}"
        most = max(known[key][1] for key in refusing)
        return f"{copies}: {which} acks=all writes now (min.insync.replicas={most})."
    last = [key for key, (size, least_size) in known.items() if size == least_size]
    if last:
        where = "" if len(last) == len(known) else f" in {counted(len(last), 'partition')}"
        most = max(known[key][1] for key in last)
        loss = f"one more loss stops it{where} (min.insync.replicas={most})"
        return f"{copies}: acks=all works, {loss}."
    return f"{copies}: acks=all works, also after one more loss."


def grouped(keys: Iterable[Key], most: int) -> str:
    """Partitions by topic: orders-0,1,2 payments-3, of at most `most` topics."""
    topics: dict[str, list[int]] = defaultdict(list)
    for key in sorted(keys):
        topics[key.topic].append(key.partition)
    shown = []
    for topic, numbers in [*topics.items()][:most]:
        rest = len(numbers) - MOST_PARTITIONS
        text = f"{topic}-{','.join(map(str, numbers[:MOST_PARTITIONS]))}"
        shown.append(text + (f" and {rest} more" if rest > 0 else ""))
    rest = len(topics) - most
    return " ".join(shown) + (f" and {counted(rest, 'more topic')}" if rest > 0 else "")
