"""The replicas of a cluster, as `kafka-topics --describe` shows them."""
