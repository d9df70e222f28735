"""What the sources say, put to the test: each claim with the run that decides it.

Claims 1 to 30 are statements of five articles about Kafka's replication, 31 to 34 what two recorded
clusters have to say about this package. They are text, in `data/claims`; `reading` says how.
"""
