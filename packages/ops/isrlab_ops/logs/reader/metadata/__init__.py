"""Kafka's metadata log, from its files: its encoding, its records, and the events they describe."""
