    /** Written for this report; it belongs at the end of ReplicationControlManagerTest. */
    @Test
    public void testAReplicaInANewDirectoryIsElected() {
        ReplicationControlTestContext ctx = new ReplicationControlTestContext.Builder().build();
        Uuid failed = Uuid.randomUuid();
        Uuid other = Uuid.randomUuid();
        ctx.registerBrokersWithDirs(1, List.of(failed, other));
        ctx.unfenceBrokers(1);
        Uuid fooId = ctx.createTestTopic("foo", new int[][] {new int[] {1}}).topicId();
        TopicIdPartition foo0 = new TopicIdPartition(fooId, 0);
        ctx.assignReplicasToDirs(1, Map.of(foo0, failed));
        List<ApiMessageAndVersion> records = new ArrayList<>();
        ctx.replicationControl.handleDirectoriesOffline(1, defaultBrokerEpoch(1), List.of(failed), records);
        ctx.replay(records);
        ctx.assignReplicasToDirs(1, Map.of(foo0, other));
        assertEquals(OptionalInt.of(1), ctx.currentLeader(foo0));
    }
