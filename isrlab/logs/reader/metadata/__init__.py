"""Kafka's metadata log, from its files: how it is encoded, what it records, what then happened."""
