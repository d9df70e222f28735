"""isrlab for who runs Kafka: what happened to a cluster (logs), and what may be stopped (check)."""
