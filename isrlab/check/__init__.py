"""What is safe, before it is done: a restart, the loss of a broker or zone, a reassignment.

state = cluster.of_text(text)          # or stored.of_files(path), live.of_cluster(servers)
restart.restarts(state)                # which brokers may go down now, and what blocks the others
exposed.risks(state)                   # what one failure from now on takes or loses
what_if.loss(state, {3})               # who leads then, and what refuses writes
"""
