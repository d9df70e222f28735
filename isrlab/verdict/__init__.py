"""Can Kafka have done this? Each line of a log against the rules of its release."""

from isrlab.verdict.verdict import Verdict, verdicts

__all__ = ["Verdict", "verdicts"]
