# 6. A last known leader that is no replica any more is not asked for.
s/if (!isAcceptableLeader.test(partition.lastKnownElr\[0\]))/if (!targetReplicas.contains(partition.lastKnownElr[0]) || !isAcceptableLeader.test(partition.lastKnownElr[0]))/
# 7. With ELR switched off, an ELR stays as long as the ISR is empty.
/private void maybeUpdateRecordElr/,/^    }/ s/|| !eligibleLeaderReplicasEnabled)/|| !eligibleLeaderReplicasEnabled \&\& !targetIsr.isEmpty())/
# 8. The last member of an ISR that is emptied while there is no leader is the last known leader.
/private void maybeUpdateLastKnownLeader/,/^    }/ s/if (record.leader() == NO_LEADER &&/if (partition.leader == NO_LEADER \&\& record.leader() < 0 \&\& targetIsr.isEmpty() \&\& partition.isr.length == 1) { record.setLastKnownElr(List.of(partition.isr[0])); } else &/
