    // Written for this report; they belong at the end of ReplicationControlManagerTest.

    private static PartitionRegistration reassign(
        ReplicationControlTestContext ctx, Uuid topicId, int partitionId, Integer... replicas
    ) {
        ControllerResult<AlterPartitionReassignmentsResponseData> result =
            ctx.replicationControl.alterPartitionReassignments(
                new AlterPartitionReassignmentsRequestData().setTopics(List.of(
                    new AlterPartitionReassignmentsRequestData.ReassignableTopic().setName("foo").setPartitions(List.of(
                        new AlterPartitionReassignmentsRequestData.ReassignablePartition().
                            setPartitionIndex(partitionId).
                            setReplicas(replicas.length == 0 ? null : List.of(replicas)))))));
        short error = result.response().responses().get(0).partitions().get(0).errorCode();
        assertEquals(NONE, Errors.forCode(error));
        ctx.replay(result.records());
        return ctx.replicationControl.getPartition(topicId, partitionId);
    }

    private static ReplicationControlTestContext contextWithElr(Integer... brokers) {
        ReplicationControlTestContext ctx =
            new ReplicationControlTestContext.Builder().setIsElrEnabled(true).build();
        ctx.registerBrokers(brokers);
        ctx.unfenceBrokers(brokers);
        return ctx;
    }

    private static Uuid createFoo(ReplicationControlTestContext ctx, int[]... replicas) {
        Uuid topicId = ctx.createTestTopic("foo", replicas).topicId();
        ctx.alterTopicConfig("foo", TopicConfig.MIN_IN_SYNC_REPLICAS_CONFIG, "2");
        return topicId;
    }

    /** The shortest test: a removed replica is put into the ELR. */
    @Test
    public void testReassignmentLeavesOnlyReplicasInElr() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1, 2);
        Uuid fooId = createFoo(ctx, new int[] {0, 1, 2}, new int[] {0, 1, 2});
        PartitionRegistration partition = reassign(ctx, fooId, 1, 0);
        assertArrayEquals(new int[] {0}, partition.replicas, partition.toString());
        assertArrayEquals(new int[] {}, partition.elr, partition.toString());
    }

    /** A: all brokers are healthy; one of two partitions moves to one replica and back; a broker fails. */
    @Test
    public void testReplicaAddedAgainIsNotElectedBeforeItIsInSync() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1, 2);
        Uuid fooId = createFoo(ctx, new int[] {0, 1, 2}, new int[] {0, 1, 2});
        reassign(ctx, fooId, 1, 0);
        reassign(ctx, fooId, 1, 0, 1, 2);
        ctx.fenceBrokers(0);
        assertEquals(OptionalInt.empty(), ctx.currentLeader(new TopicIdPartition(fooId, 1)));
    }

    /** B: both partitions are moved in one request, and back one after the other. */
    @Test
    public void testPartitionsAddedAgainOneByOneHaveNoLeaderBeforeTheyAreInSync() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1, 2);
        Uuid fooId = createFoo(ctx, new int[] {0, 1, 2}, new int[] {0, 1, 2});
        reassign(ctx, fooId, 1, 0); // the controller takes the partitions of a request in turn
        reassign(ctx, fooId, 0, 0);
        reassign(ctx, fooId, 0, 0, 1, 2);
        reassign(ctx, fooId, 1, 0, 1, 2);
        ctx.fenceBrokers(0);
        assertEquals(OptionalInt.empty(), ctx.currentLeader(new TopicIdPartition(fooId, 1)));
    }

    /** C: broker 0 is drained and undrained while 1 and 2 are down. */
    @Test
    public void testDrainedReplicaIsNotElectedWhenItIsAddedAgain() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1, 2, 3);
        Uuid fooId = createFoo(ctx, new int[][] {new int[] {0, 1, 2}});
        TopicIdPartition foo0 = new TopicIdPartition(fooId, 0);
        ctx.fenceBrokers(1, 2);
        reassign(ctx, fooId, 0, 3, 1, 2);
        ctx.alterPartition(foo0, 0, isrWithDefaultEpoch(0, 3), LeaderRecoveryState.RECOVERED);
        PartitionRegistration partition = ctx.replicationControl.getPartition(fooId, 0);
        boolean isCompleted = partition.leader == 3; // from 4.3.0 on, KAFKA-19975
        reassign(ctx, fooId, 0, 0, 1, 2);
        ctx.fenceBrokers(1, 2, 3);
        OptionalInt expected = isCompleted ? OptionalInt.empty() : OptionalInt.of(0); // 0 has its log, or not
        assertEquals(expected, ctx.currentLeader(foo0));
    }

    /** D: partition 0 has one replica, so the controller keeps no ELR for partition 1. */
    @Test
    public void testMinIsrIsBoundedByThePartitionItself() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1, 2);
        Uuid fooId = createFoo(ctx, new int[] {0, 1, 2}, new int[] {0, 1, 2});
        reassign(ctx, fooId, 0, 0);
        ctx.fenceBrokers(1, 2);
        PartitionRegistration partition = ctx.replicationControl.getPartition(fooId, 1);
        assertArrayEquals(new int[] {0}, partition.isr, partition.toString());
        assertEquals(1, partition.elr.length, partition.toString()); // the second that left the ISR
    }

    /** F: the only replica is down, and a reassignment requests the removed replicas again. */
    @Test
    public void testReplicasCanBeAddedToAPartitionWithoutLeader() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1, 2);
        Uuid fooId = createFoo(ctx, new int[] {0, 1, 2}, new int[] {0, 1, 2});
        reassign(ctx, fooId, 1, 0);
        ctx.fenceBrokers(0);
        PartitionRegistration partition = reassign(ctx, fooId, 1, 0, 1, 2);
        assertArrayEquals(new int[] {1, 2}, partition.addingReplicas, partition.toString());
    }

    /** G: one partition, and a reassignment that is cancelled after its new replica has joined. */
    @Test
    public void testReplicaOfACancelledReassignmentIsNotElected() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1, 2, 3);
        Uuid fooId = createFoo(ctx, new int[][] {new int[] {0, 1}});
        TopicIdPartition foo0 = new TopicIdPartition(fooId, 0);
        ctx.fenceBrokers(1);
        reassign(ctx, fooId, 0, 2, 3);
        ctx.alterPartition(foo0, 0, isrWithDefaultEpoch(0, 3), LeaderRecoveryState.RECOVERED);
        reassign(ctx, fooId, 0); // cancelled
        reassign(ctx, fooId, 0, 0, 3);
        ctx.fenceBrokers(0, 1);
        assertEquals(OptionalInt.empty(), ctx.currentLeader(foo0));
    }
