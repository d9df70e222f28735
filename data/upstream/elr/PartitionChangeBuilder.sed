# An ELR member was a replica before the change, and is one after it: the second keeps out what is
# removed, the first what an older release left in the metadata log.
/candidateSet::add);$/a\        candidateSet.retainAll(targetReplicas);\n        candidateSet.retainAll(Replicas.toList(partition.replicas));
/candidateSet.addAll(targetLastKnownElr);$/a\        candidateSet.retainAll(targetReplicas);\n        candidateSet.retainAll(Replicas.toList(partition.replicas));
# The min ISR is bounded by the replicas of this partition.
s/if (targetIsr.size() >= minISR) {/if (targetIsr.size() >= Math.min(minISR, targetReplicas.size())) {/
