# 6. A last known leader that is no replica any more is not asked for.
s/if (!isAcceptableLeader.test(partition.lastKnownElr\[0\]))/if (!targetReplicas.contains(partition.lastKnownElr[0]) || !isAcceptableLeader.test(partition.lastKnownElr[0]))/
# 7. With ELR switched off, an ELR stays as long as the ISR is empty.
/private void maybeUpdateRecordElr/,/^    }/ s/|| !eligibleLeaderReplicasEnabled)/|| !eligibleLeaderReplicasEnabled \&\& !targetIsr.isEmpty())/
