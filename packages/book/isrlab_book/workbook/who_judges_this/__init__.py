"""What backs these notebooks' results: Kafka's classes, the fleet's scatter, the hunt."""
