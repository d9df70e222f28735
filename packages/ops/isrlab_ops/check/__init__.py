"""What a restart, a failure or a reassignment would do to a cluster (`python -m isrlab check`).

A text, a metadata log or a live cluster becomes a `ClusterState` for a `ClusterCheck`.
"""
