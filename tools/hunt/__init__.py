"""Random schedules on Kafka's own controller, against what Kafka promises.

The Java (folder java, in the package of Kafka's controller) is compiled when it is first needed,
against the jars of the release: the real managers of the controller and, beside them, a ghost that
knows which replica has which acknowledged records; or, at level two, whole brokers with their logs.
A schedule that breaks a promise is cut to its shortest, compared with the kinds of breaks that
data/hunt keeps, and replayed on every release.
"""
