"""What the sources say, put to the test: each claim with the run that decides it.

The claims are statements of five articles about Kafka's replication. They are text, in
`data/claims`; `reading` says how.
"""
