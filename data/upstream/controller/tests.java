    // Written for this report; they belong at the end of ReplicationControlManagerTest.

    private static PartitionRegistration reassign(
        ReplicationControlTestContext ctx, Uuid topicId, List<Integer> replicas
    ) {
        ControllerResult<AlterPartitionReassignmentsResponseData> result =
            ctx.replicationControl.alterPartitionReassignments(
                new AlterPartitionReassignmentsRequestData().setTopics(List.of(
                    new AlterPartitionReassignmentsRequestData.ReassignableTopic().setName("foo").
                        setPartitions(List.of(
                            new AlterPartitionReassignmentsRequestData.ReassignablePartition().
                                setPartitionIndex(0).setReplicas(replicas))))));
        ctx.replay(result.records());
        return ctx.replicationControl.getPartition(topicId, 0);
    }

    private static ReplicationControlTestContext contextWithElr(Integer... brokers) {
        ReplicationControlTestContext ctx =
            new ReplicationControlTestContext.Builder().setIsElrEnabled(true).build();
        ctx.registerBrokers(brokers);
        ctx.unfenceBrokers(brokers);
        return ctx;
    }

    /** A topic whose ELR, broker 1, has been cleared because min.insync.replicas was altered. */
    private static Uuid createFooAndClearItsElr(ReplicationControlTestContext ctx) {
        Uuid fooId = ctx.createTestTopic("foo", new int[][] {new int[] {0, 1}}).topicId();
        ctx.alterTopicConfig("foo", TopicConfig.MIN_IN_SYNC_REPLICAS_CONFIG, "2");
        ctx.fenceBrokers(1);
        assertArrayEquals(new int[] {1}, ctx.replicationControl.getPartition(fooId, 0).elr);
        ctx.replicationControl.replay(
            new org.apache.kafka.common.metadata.ClearElrRecord().setTopicName("foo"));
        assertArrayEquals(new int[] {}, ctx.replicationControl.getPartition(fooId, 0).elr);
        return fooId;
    }

    /** 1. An ELR that is cleared also leaves the index. */
    @Test
    public void testClearedElrLeavesTheIndexByBroker() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1);
        createFooAndClearItsElr(ctx);
        assertFalse(ctx.replicationControl.brokersToElrs().partitionsWithBrokerInElr(1).hasNext());
    }

    /** 1. Afterwards the topic is deleted, and broker 1 returns from an unclean shutdown. */
    @Test
    public void testUncleanShutdownAfterTopicWithClearedElrIsDeleted() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1);
        Uuid fooId = createFooAndClearItsElr(ctx);
        ctx.deleteTopic(anonymousContextFor(ApiKeys.DELETE_TOPICS), fooId);
        List<ApiMessageAndVersion> records = new ArrayList<>();
        ctx.replicationControl.handleBrokerShutdown(1, false, records);
        assertEquals(List.of(), records);
    }

    /** 2. A topic is deleted while its ISR is empty, then the directory of its replica fails. */
    @Test
    public void testDirectoryFailsAfterTopicWithEmptyIsrIsDeleted() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1);
        Uuid fooId = ctx.createTestTopic("foo", new int[][] {new int[] {1}}).topicId();
        ctx.fenceBrokers(1);
        assertArrayEquals(new int[] {}, ctx.replicationControl.getPartition(fooId, 0).isr);
        ctx.deleteTopic(anonymousContextFor(ApiKeys.DELETE_TOPICS), fooId);
        List<ApiMessageAndVersion> records = new ArrayList<>();
        ctx.replicationControl.handleDirectoriesOffline(1, defaultBrokerEpoch(1),
            List.of(Uuid.fromString("TESTBROKER00001DIRAAAA")), records);
        assertEquals(1, records.size()); // the registration's change, and no partition
    }

    /** 3. A reassignment is turned back before it completes; all replicas are in sync. */
    @Test
    public void testReassignmentThatIsTurnedBackCompletes() {
        ReplicationControlTestContext ctx = new ReplicationControlTestContext.Builder().build();
        ctx.registerBrokers(0, 1, 2, 3);
        ctx.unfenceBrokers(0, 1, 2, 3);
        Uuid fooId = ctx.createTestTopic("foo", new int[][] {new int[] {0, 1, 2}}).topicId();
        reassign(ctx, fooId, List.of(3, 1, 2));
        PartitionRegistration partition = reassign(ctx, fooId, List.of(0, 1, 2));
        assertArrayEquals(new int[] {}, partition.addingReplicas, partition.toString());
        assertArrayEquals(new int[] {}, partition.removingReplicas, partition.toString());
        assertArrayEquals(new int[] {0, 1, 2}, partition.replicas, partition.toString());
    }

    /** 4. min.insync.replicas is altered while every replica is fenced, and all come back. */
    @Test
    public void testElrOfPartitionWithEmptyIsrIsNotCleared() {
        ReplicationControlTestContext ctx = contextWithElr(0, 1);
        Uuid fooId = ctx.createTestTopic("foo", new int[][] {new int[] {0, 1}}).topicId();
        ctx.alterTopicConfig("foo", TopicConfig.MIN_IN_SYNC_REPLICAS_CONFIG, "2");
        ctx.fenceBrokers(0, 1);
        assertArrayEquals(new int[] {}, ctx.replicationControl.getPartition(fooId, 0).isr);
        ctx.replicationControl.replay(
            new org.apache.kafka.common.metadata.ClearElrRecord().setTopicName("foo"));
        ctx.unfenceBrokers(0, 1);
        PartitionRegistration partition = ctx.replicationControl.getPartition(fooId, 0);
        assertTrue(partition.leader >= 0, partition.toString());
    }
