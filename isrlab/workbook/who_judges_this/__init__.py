"""Who judges what these notebooks say: Kafka's classes, the fleet's own scatter, the hunt."""
