"""What each command of the scenario language does, in a sentence for its author.

The syntax is in `commands`; a test checks that both have the same commands.
"""

from __future__ import annotations

import re

from isrlab.engine.versions import PRESETS
from isrlab.world.commands import COMMANDS, SYNONYMS

EXPLAINED = {
    "version": "The Kafka release whose rules are played; it stands before the partition line.",
    "partition": "Sets up the partition: its leader, its replicas and the settings of the topic.",
    "produce": "A client writes a record to a broker; with every= and for= it goes on writing.",
    "consume": "Shows what a consumer may read from a broker: all below its high watermark.",
    "fetch": "One round of a follower: its answer arrives, and its next fetch reaches the leader.",
    "deliver": "The next message on a link, such as 1>2, arrives now; `any`: if there is one.",
    "drop": "The next message on a link is lost, and its sender's connection breaks.",
    "refuse": "The controller fails to store the next ISR change on a link, and answers so.",
    "stabilize": "Delivers every message on its way; what waits for a timer stays.",
    "advance": "Time passes: timers fire, and messages arrive when they are due.",
    "pause": "A process stops without dying; with `fetcher` it only stops fetching.",
    "resume": "A paused process or fetcher goes on.",
    "kill": "The process dies, and keeps what it has written. The controller is not told.",
    "power_loss": "The machine loses power: what was not flushed to its disk is lost.",
    "clean_shutdown": "The broker hands over its leadership, leaves the ISR, and stops.",
    "hard_bounce": "The process dies and starts before the controller notices.",
    "clean_bounce": "A clean shutdown, and a start.",
    "start": "A dead broker starts on its disk, and registers with the controller.",
    "cut": "No message passes between two machines, until `heal`.",
    "heal": "Messages pass between two machines that were cut off from each other.",
    "degraded_network": "From now on messages between two machines take this long, each way.",
    "flush": "The operating system writes a broker's log to its disk.",
    "elect": "The controller notices dead brokers; with a word, an operator asks for an election.",
    "reassign": "An operator moves the partition to these brokers; `cancel` takes that back.",
    "configure": "An operator changes min.insync.replicas of the topic, or of the whole cluster.",
    "status": "Prints a line for each replica.",
    "check": "Prints which promises hold, and which are broken.",
    "trace": "Prints every message (on), what changes (off), or only the ISR (isr).",
}


def words() -> dict[str, dict[str, str | list[str]]]:
    """For each command: its syntax, what it does, and the words that may follow it."""
    shown: dict[str, dict[str, str | list[str]]] = {}
    for name in (*COMMANDS, *SYNONYMS):
        form, does = COMMANDS[SYNONYMS.get(name, name)], EXPLAINED[SYNONYMS.get(name, name)]
        follow = re.findall(r"\b[a-z][a-z_]+", form.words)
        follow += [option.partition("=")[0] + "=" for option in form.options.split()]
        if name == "version":
            follow = [version.name for version in PRESETS.values()]
        usage = f"{name} {form.words}".strip()
        shown[name] = {"usage": usage, "does": does, "follow": follow}
    return shown
