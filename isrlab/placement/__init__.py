"""The replicas of a cluster, as `kafka-topics --describe` shows them or as Kafka places them."""
