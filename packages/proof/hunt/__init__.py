"""Random schedules on Kafka's own controller, checked against Kafka's promises.

The Java (folder java, in the package of Kafka's controller) is compiled against the jars of a
release when it is first needed. It runs the real managers of the controller and a ghost, which
tracks the acknowledged records that each replica has; or, at level two, whole brokers with their
logs. A schedule that breaks a promise is shortened as far as possible, and compared with the kinds
of breaks in data/hunt, which can be replayed on every release.
"""
