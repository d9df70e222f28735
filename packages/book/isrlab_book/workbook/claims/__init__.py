"""What the sources say, put to the test: each claim with the run that decides it.

Claims 1 to 30 are statements of five articles about Kafka's replication; 31 to 34 are about brokers
and their logs, and two recorded clusters decide them. `reading` reads them from `data/claims`.
"""
