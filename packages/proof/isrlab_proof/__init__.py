"""isrlab for who changes the protocol: which promises hold, by search and by Kafka's classes."""
