"""`python -m record --help`, in the folder packages/proof, or `make record` at the top."""

from __future__ import annotations

import lzma
import signal
import sys
import time
from collections.abc import Iterator
from itertools import chain

import click
import msgspec

from isrlab.world import scenario
from isrlab_ops.recordings import recorded
from judge import jars
from record import play


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name", required=False)
@click.option("--version", help="A release, such as 0.10.2.2.")
@click.option("--tries", default=1, show_default=True, help="How often to play it.")
@click.option("--feature", help="Of a KRaft cluster: eligible.leader.replicas.version=0, or 1.")
@click.option("--store", is_flag=True, help="Add the recording to data/recordings/history.")
@click.option("--keep", is_flag=True, help="Keep the brokers' folders, and print their path.")
def main(
    name: str | None, version: str, tries: int, feature: str | None, store: bool, keep: bool
) -> None:
    """Play a schedule of data/scenarios on real brokers; without a name, list the recordings.

    \b
    python -m record loss_three_replicas --version 0.10.2.2 --tries 10
    """
    if name is None:
        print(*map(recorded.row, recorded.recordings()), sep="\n")
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    features = {part[0]: int(part[2]) for part in [(feature or "").partition("=")] if part[2]}
    label = "-".join([name, version, *(f"elr{level}" for level in features.values())])
    try:
        text, tries_seen = scenario.read(name), list[recorded.Try]()
        play.setup_of(text)
    except ValueError as wrong:
        sys.exit(str(wrong))
    for number in range(tries):
        seen = one_try(text, version, features, keep)
        tries_seen.append(seen)
        print(f"{label}, try {number + 1} of {tries} {seen.abandoned}")
        ends = chain.from_iterable(map(lines, seen.moments))
        print(seen.answers, *seen.timeline, *ends, sep="\n", flush=True)
        if store:
            path = recorded.FOLDER / f"{label}.txt.xz"
            before = lzma.decompress(path.read_bytes()) if path.exists() else b""
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(lzma.compress(before + msgspec.json.encode(seen) + b"\n"))
    recording = recorded.labelled(label, tries_seen)
    print(recorded.row(recording))
    for difference, times in recording.differences().items():
        print(f"  block {difference.block}, {difference.what}: engine {difference.engine}, "
              f"Kafka {difference.kafka} ({times} times)")  # fmt: skip


def lines(moment: recorded.BlockEnd) -> Iterator[str]:
    """The end of a block as text: the stored state of the partition, and each replica's disk."""
    state = moment.state
    yield f"leader={state.leader} epoch={state.leader_epoch} isr={state.isr}"
    for number, log in moment.disks.items():
        offsets = f"leo={log.log_end_offset} hw={log.checkpointed_high_watermark}"
        records = " ".join(f"{record.id}@{record.leader_epoch}" for record in log.records)
        yield f"  {number} {moment.lives[number]:<6} {offsets} {records}"


def one_try(text: str, version: str, features: dict[str, int], keep: bool) -> recorded.Try:
    """The recording of one try; if it did not finish, with the reason."""
    try:
        cluster = play.cluster(version, text, features, keep)
    except (jars.NoJarsError, ImportError) as missing:
        sys.exit(f"{version}: {missing}")
    try:
        with cluster:
            return play.Play(cluster, text).run()
    except (TimeoutError, RuntimeError) as error:  # recorded, never left out
        began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(cluster.began))
        return recorded.Try(began, abandoned=" ".join(str(error).split()))
    finally:
        if keep:
            print(cluster.folder)


if __name__ == "__main__":
    main()
