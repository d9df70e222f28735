package org.apache.kafka.controller;

/** What Kafka promises, and where it does. A new promise: one row here, one check in Promises. */
enum Promise {
    ANSWERED("a request is answered, if not as asked then by an error of Kafka's protocol",
        "ControllerExceptions: another exception makes the active controller resign"),
    REPLAYED("a record that the controller writes can be written and replayed",
        "QuorumController.replay: a failure is fatal"),
    ISR_OF_REPLICAS("each member of the ISR is a replica",
        "kafka-tlaplus kip-966, ValidControllerIsrAndElr"),
    ELR_OF_REPLICAS("each member of the ELR is a replica",
        "KIP-966, Reassignment: the ELR only contains replicas of the final set; ValidControllerIsrAndElr"),
    ISR_OR_ELR("no broker is in both the ISR and the ELR", "KIP-966; BrokersToElrs"),
    ELR_UNDER_MIN("with the ISR at its effective minimum the ELR is empty", "KIP-966, ELR invariants"),
    LEADER_OF_ISR("the leader is in the ISR", "KIP-497; PartitionRegistration"),
    LEADER_ACTIVE("the leader is unfenced, not stopping, and its directory is online",
        "KIP-631, KIP-841, KIP-858"),
    ISR_ACTIVE("a fenced or stopping broker is in the ISR as its last member only", "KIP-841"),
    ELR_REGISTERED("a broker that was unregistered is in no ISR and no ELR",
        "handleBrokerUnregistered, ReplicationControlManager: 'First, we remove this broker'"),
    LEADER_HAS_ALL("a leader that is elected cleanly has every acknowledged record",
        "KIP-101, KIP-966; kafka-tlaplus: LeaderHasCompleteHsCommittedData"),
    ISR_HAS_ALL("each member of the ISR has every acknowledged record", "KIP-497; kafka-tlaplus"),
    ELR_HAS_ALL("each member of the ELR has every acknowledged record", "KIP-966"),
    LEADER_COMES("with an eligible replica active and without a leader, a leader is elected",
        "KIP-631; KIP-966, Leader election"),
    ONE_ELIGIBLE("a partition without a leader has a replica to elect: in the ISR, the ELR or the last known ELR",
        "KIP-966, Leader election; Kafka's documentation, Eligible Leader Replicas"),
    UNCLEAN_COMES("with unclean elections on, a replica active and no leader, one is elected by the timer",
        "KAFKA-12670; unclean.leader.election.enable"),
    MIN_ISR_AGREED("leader and controller agree on the effective min ISR", "KAFKA-15583; KIP-966"),
    ISR_INDEX("the index of ISR members by broker matches the partitions", "BrokersToIsrs"),
    ELR_INDEX("the index of ELR members by broker matches the partitions", "BrokersToElrs"),
    DIRECTORY_INDEX("the index of partitions by directory matches the partitions", "KIP-858"),
    REASSIGNING_INDEX("the index of reassigning partitions matches the partitions", "KIP-455"),
    IMBALANCE_INDEX("the set of imbalanced partitions matches the partitions", "KIP-631"),
    IMAGE_AGREES("the image that brokers build from the records has the controller's partitions, brokers",
        "KIP-631"),
    RELOADED("a controller that takes over has the partitions and brokers of the one before",
        "KIP-630, KIP-631"),
    EPOCHS_RISE("partition and leader epochs never go back, and a new leader has a new leader epoch",
        "KIP-320, KIP-497"),
    HW_OF_MIN_ISR("with the leader's ISR under its effective minimum the high watermark stays", "KAFKA-15583; KIP-966"),
    ACKED_READABLE("with all replicas in sync each acknowledged record can be read", "KIP-101; KIP-207"),
    PRODUCE_ANSWERED("with all replicas in sync each produce request has its answer", "KAFKA-13091"),
    LOGS_AGREE("with all replicas in sync and no message on its way the logs are equally long", "KIP-101, KIP-279"),
    REASSIGNMENT_ENDS("with all its replicas in sync a reassignment completes", "KIP-455"),
    ALL_RECOVERS("with all brokers back, each partition that can has a leader and all replicas in sync",
        "KIP-497, KIP-631");

    final String sentence;
    final String source;

    Promise(String sentence, String source) {
        this.sentence = sentence;
        this.source = source;
    }
}
