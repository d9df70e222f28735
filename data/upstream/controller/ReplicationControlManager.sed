# 1. An ELR that is cleared also leaves the indices.
/int removeTopicElrs/,/^    }/ {
    # 4. While the ISR is empty the ELR holds the only replicas that may lead.
    s/if (\(partition.elr.length != 0 || partition.lastKnownElr.length != 0\))/if (partition.isr.length != 0 \&\& (\1))/
    s/topic.parts.put(partitionId, partition.merge(/PartitionRegistration cleared = partition.merge(/
    s/setLastKnownElr(List.of())));/setLastKnownElr(List.of()));\n                topic.parts.put(partitionId, cleared);\n                updatePartitionInfo(topic.id, partitionId, partition, cleared);/
}
# 2. The directories of a deleted topic do not depend on its ISR.
/public void replay(RemoveTopicRecord record)/,/^    }/ {
    /updatePartitionDirectories(/d
    s/for (int elrMember : partition.elr) {/updatePartitionDirectories(topic.id, partitionId, partition.directories, null);\n            &/
}
# 3. Lists that a turned back reassignment no longer has are emptied.
s/if (!reassignment.removing().isEmpty()) {/{/
s/if (!reassignment.adding().isEmpty()) {/{/
