# Of the broker that reports, the new directory counts, not the one that the partition had before.
s/new LeaderAcceptor(clusterControl, partitionRegistration),/id -> id == brokerId ? !directoryIsOffline \&\& clusterControl.isActive(id)\n                : new LeaderAcceptor(clusterControl, partitionRegistration).test(id),/
