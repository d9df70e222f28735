"""What is safe before it is done: a restart, a failure, a reassignment (`python -m isrlab check`).

A text, a metadata log or a live cluster becomes a `cluster.ClusterState`; `answer.check_of` asks.
"""
