package org.apache.kafka.controller;

import java.io.InputStream;
import java.lang.invoke.MethodHandles;
import jdk.internal.org.objectweb.asm.*;

/** The smallest repair of the race, in the bytecode of Kafka's Partition (Scala, so its source cannot be edited). */
public final class Repair {
    private Repair() { }

    /** Guards makeLeader: a leader that receives the epochs that it already has keeps its state. */
    static void keepPendingChange() {
        String name = "kafka/cluster/Partition";
        try (InputStream in = Repair.class.getClassLoader().getResourceAsStream(name + ".class")) {
            ClassWriter writer = new ClassWriter(0);
            new ClassReader(in).accept(new ClassVisitor(Opcodes.ASM8, writer) {
                @Override
                public MethodVisitor visitMethod(int access, String method, String kind, String s, String[] e) {
                    MethodVisitor next = super.visitMethod(access, method, kind, s, e);
                    return method.equals("makeLeader") ? guarded(next) : next;
                }
            }, 0);
            MethodHandles.privateLookupIn(Late.type("kafka.cluster.DelayedOperations"), MethodHandles.lookup())
                .defineClass(writer.toByteArray());
        } catch (java.io.IOException | IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    private static MethodVisitor guarded(MethodVisitor method) {
        return new MethodVisitor(Opcodes.ASM8, method) {
            @Override
            public void visitCode() {
                super.visitCode();
                Label other = new Label();
                visitVarInsn(Opcodes.ALOAD, 0);
                visitVarInsn(Opcodes.ALOAD, 1);
                visitMethodInsn(Opcodes.INVOKESTATIC, "org/apache/kafka/controller/Repair", "isKnown",
                    "(Ljava/lang/Object;Ljava/lang/Object;)Z", false);
                visitJumpInsn(Opcodes.IFEQ, other);
                visitInsn(Opcodes.ICONST_0);
                visitInsn(Opcodes.IRETURN);
                visitLabel(other);
                visitFrame(Opcodes.F_SAME, 0, null, 0, null);
            }

            @Override
            public void visitMaxs(int stack, int locals) { super.visitMaxs(Math.max(stack, 2), locals); }
        };
    }

    public static boolean isKnown(Object partition, Object news) {
        return Late.<Boolean>call(partition, "isLeader") && number(news, "leaderEpoch")
            == Late.<Integer>call(partition, "getLeaderEpoch") && number(news, "partitionEpoch")
            == Late.<Integer>call(partition, "getPartitionEpoch");
    }

    private static int number(Object news, String name) {
        return Late.has(news, name) ? Late.<Integer>call(news, name) : Late.field(news, name, -1);
    }
}
