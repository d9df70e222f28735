"""isrlab: how Apache Kafka keeps replicas in sync, version by version."""
