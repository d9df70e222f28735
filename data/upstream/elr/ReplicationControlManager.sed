# The builder of a change bounds the min ISR: here it is the configured value. (In 4.x nothing but
# that builder, and one assertion of Kafka's tests, asks for it.)
/int getTopicEffectiveMinIsr(String/,/^    }/ s/return Math.min(currentMinIsr, replicationFactor);/return currentMinIsr;/
