"""`python -m record --help`, in the folder tests, or `make record` at the top."""

from __future__ import annotations

import lzma
import signal
import sys
import time
from pathlib import Path

import click
from judge import jars

from isrlab.world import scenario
from record import play

KEPT = Path(__file__).resolve().parents[2] / "data" / "recordings" / "history"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("name")
@click.option("--version", required=True, help="A release, such as 0.10.2.2.")
@click.option("--tries", default=1, show_default=True, help="How often.")
@click.option("--feature", multiple=True, help="Of a KRaft cluster: name=level.")
@click.option("--store", is_flag=True, help="Add what was seen to data/recordings/history.")
@click.option("--keep", is_flag=True, help="Leave the brokers' folders, and say where.")
def main(
    name: str, version: str, tries: int, feature: tuple[str, ...], store: bool, keep: bool
) -> None:
    """Play a schedule of data/scenarios on real brokers.

    \b
    python -m record loss_three_replicas --version 0.10.2.2 --tries 10
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    text = scenario.read(name)
    features = {key: int(level) for key, _, level in (f.partition("=") for f in feature)}
    label = "-".join([name, version, *(f"elr{features[k]}" for k in features if "eligible" in k)])
    for number in range(tries):
        try:
            cluster = play.cluster(version, text, features, keep)
        except jars.NoJarsError as missing:
            sys.exit(f"{version}: {missing}")
        try:
            with cluster:
                lines = play.Play(cluster, text).run()
        except (TimeoutError, RuntimeError) as error:  # said, never left out
            began = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(cluster.began))
            lines = [f"try {began} abandoned: {error}"]
        print(f"{label}, try {number + 1}", *(lines if not store else lines[:1]), sep="\n")
        sys.stdout.flush()
        if keep:
            print(cluster.folder)
        if store:
            path = KEPT / f"{label}.txt.xz"
            before = lzma.decompress(path.read_bytes()).decode() if path.exists() else ""
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(lzma.compress((before + "\n".join(lines) + "\n").encode()))


if __name__ == "__main__":
    main()
