package org.apache.kafka.controller;

import java.lang.invoke.*;
import java.lang.reflect.*;
import java.util.*;
import java.util.concurrent.Callable;
import java.util.function.BiFunction;
import java.util.stream.*;

/**
 * Bridges the differences between releases by reflection: finds classes by the end of their name, methods by name,
 * and parameters by type. A call passes the arguments of the newest release in order; an older method takes
 * those that fit. A name may have alternatives, "new|old", of which the last may be empty: then nothing is called.
 */
final class Late {
    private record Call(MethodHandle handle, int[] chosen) { }

    /** The packages of Kafka's classes: if a class has moved, its newest place comes first. */
    private static final String[] PACKAGES = ("server.storage.log storage.internals.log storage.log.metrics"
        + " storage.internals.checkpoint server.partition server.purgatory server.common server.util"
        + " server common.utils common.utils.internals common.record.internal common.record common.compress"
        + " common.requests common.message metadata image image.writer controller clients"
        + " cluster server.metadata server.checkpoints utils log").split(" ");
    private static final Map<Class<?>, Map<String, Optional<Call>>> CALLS = new HashMap<>();
    private static final Map<Class<?>, Map<String, Optional<Field>>> FIELDS = new HashMap<>();
    private static final Map<String, Optional<Class<?>>> TYPES = new HashMap<>();

    private Late() { }

    /** Runs this, and throws its exceptions on unchanged. */
    private static <T> T sure(Callable<T> body) {
        try {
            return body.call();
        } catch (Exception e) {
            throw Late.<RuntimeException>as(e);
        }
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> E as(Throwable e) throws E { throw (E) e; }

    /** The class of one of these names, or null in releases without it. */
    static Class<?> type(String names) {
        return TYPES.computeIfAbsent(names, x -> Stream.of(names.split("\\|"))
            .flatMap(name -> Stream.of("org.apache.kafka.", "kafka.")
                .flatMap(root -> Stream.of(PACKAGES).<Class<?>>map(place -> loaded(root + place + "." + name))))
            .filter(Objects::nonNull).findFirst()).orElse(null);
    }

    private static Class<?> loaded(String name) {
        try {
            return Class.forName(name, false, Late.class.getClassLoader());
        } catch (ClassNotFoundException | NoClassDefFoundError e) {
            return null;
        }
    }

    /** The class that is meant: by itself, by its name, or as that of an object. */
    private static Class<?> kind(Object target) {
        if (target instanceof Class<?> kind) return kind;
        return target instanceof String names ? Objects.requireNonNull(type(names), names) : target.getClass();
    }

    /** A static field's value, or null in releases without the class. */
    static Object constant(String names, String field) {
        return type(names) == null ? null : sure(() -> type(names).getField(field).get(null));
    }

    static boolean has(Object target, String name) { return !named(kind(target), name).isEmpty(); }

    /** Calls a method (static if the target is a class). Its exceptions are thrown on unchanged. */
    static <T> T call(Object target, String names, Object... args) { return run(names, target, names, args); }

    /** A new object, from the longest constructor whose parameters these arguments fill. */
    static <T> T made(Object type, Object... args) { return run("<init>", kind(type), "<init>", args); }

    /** Replays a record in a manager or a delta, if it has a `replay` for the record's type. */
    static void replay(Object target, Object record, long at) {
        run(record.getClass().getName(), target, "replay|", record, at);
    }

    @SuppressWarnings("unchecked")
    private static <T> T run(String key, Object target, String names, Object... args) {
        Map<String, Optional<Call>> calls = CALLS.computeIfAbsent(kind(target), x -> new HashMap<>());
        Optional<Call> found = calls.get(key); // no lambda here: most calls come this way
        if (found == null) calls.put(key, found = chosen(kind(target), names, args));
        if (found.isEmpty()) return null;
        Call call = found.get();
        Object[] given = new Object[call.chosen.length + 1];
        given[0] = target;
        for (int i = 0; i < call.chosen.length; i++) given[i + 1] = args[call.chosen[i]];
        try {
            return (T) (Object) call.handle.invokeExact(given);
        } catch (Throwable e) {
            throw Late.<RuntimeException>as(e);
        }
    }

    private static Optional<Call> chosen(Class<?> kind, String names, Object[] args) {
        for (String name : names.split("\\|")) {
            for (Executable body : named(kind, name)) {
                int[] fit = fit(body.getParameterTypes(), args);
                if (fit != null) return Optional.of(new Call(sure(() -> handle(body)), fit));
            }
        }
        if (names.endsWith("|")) return Optional.empty();
        throw new IllegalStateException(kind.getName() + " has no " + names + " for " + Arrays.toString(args));
    }

    /** The methods of this name, of superclasses and interfaces too, or the constructors, longest first. */
    private static List<? extends Executable> named(Class<?> kind, String name) {
        if (name.equals("<init>")) {
            return Stream.of(kind.getDeclaredConstructors())
                .sorted(Comparator.comparing(c -> -c.getParameterCount())).toList();
        }
        return parents(kind).flatMap(c -> Stream.concat(Stream.of(c.getDeclaredMethods()),
            Stream.of(c.getInterfaces()).flatMap(face -> Stream.of(face.getMethods()))))
            .filter(method -> method.getName().equals(name) && !method.isBridge()).toList();
    }

    private static Stream<Class<?>> parents(Class<?> kind) {
        return Stream.iterate(kind, Objects::nonNull, Class::getSuperclass);
    }

    /** A handle that takes an array: the target, which only a method of an object uses, and the arguments. */
    private static MethodHandle handle(Executable body) throws IllegalAccessException {
        body.setAccessible(true);
        MethodHandle handle = (body instanceof Method method ? MethodHandles.lookup().unreflect(method)
            : MethodHandles.lookup().unreflectConstructor((Constructor<?>) body)).asFixedArity();
        boolean isOfObject = body instanceof Method && !Modifier.isStatic(body.getModifiers());
        if (!isOfObject) handle = MethodHandles.dropArguments(handle, 0, Object.class);
        return handle.asType(handle.type().generic()).asSpreader(Object[].class, handle.type().parameterCount());
    }

    /** For each parameter, the index of the first unused argument of its type; null if one has none. */
    private static int[] fit(Class<?>[] parameters, Object[] args) {
        int[] chosen = new int[parameters.length];
        Arrays.fill(chosen, -1);
        for (int i = 0; i < parameters.length; i++) {
            Class<?> kind = MethodType.methodType(parameters[i]).wrap().returnType();
            int at = 0;
            while (at < args.length && (World.holds(chosen, at) || !kind.isInstance(args[at]))) at++;
            if (at == args.length) return null;
            chosen[i] = at;
        }
        return chosen;
    }

    /** A field's value, or `otherwise` in releases without that field. */
    @SuppressWarnings("unchecked")
    static <T> T field(Object target, String name, T otherwise) {
        Field field = declared(target.getClass(), name);
        return field == null ? otherwise : sure(() -> (T) field.get(target));
    }

    static void set(Object target, String name, Object value) {
        sure(() -> {
            declared(target.getClass(), name).set(target, value);
            return null;
        });
    }

    private static Field declared(Class<?> kind, String name) {
        return FIELDS.computeIfAbsent(kind, x -> new HashMap<>()).computeIfAbsent(name, x ->
            parents(kind).flatMap(c -> Stream.of(c.getDeclaredFields())).filter(field -> field.getName().equals(name))
                .peek(field -> field.setAccessible(true)).findFirst()).orElse(null);
    }

    /** An object made without a constructor, for a parameter that is required but not used here. */
    static Object blank(Class<?> kind) {
        sun.misc.Unsafe unsafe = sure(() -> (sun.misc.Unsafe) declared(sun.misc.Unsafe.class, "theUnsafe").get(null));
        return sure(() -> unsafe.allocateInstance(kind));
    }

    /** An object of this interface, all of whose methods are this function of their name and arguments. */
    static Object proxy(Object face, BiFunction<String, Object[], Object> body) {
        return Proxy.newProxyInstance(Late.class.getClassLoader(), new Class<?>[] {kind(face)},
            (self, method, args) -> switch (method.getName()) {
                case "hashCode" -> System.identityHashCode(self);
                case "equals" -> self == args[0];
                case "toString" -> "hunt";
                default -> body.apply(method.getName(), args);
            });
    }

    /** A manager of the controller from its builder, whose setters are filled by name or by type. */
    static <T> T built(Class<T> kind, Map<String, Object> parts) {
        Object builder = made(kind.getSimpleName() + "$Builder");
        for (Method method : builder.getClass().getDeclaredMethods()) {
            if (!method.getName().startsWith("set") || method.getParameterCount() != 1) continue;
            String kindOfPart = method.getParameterTypes()[0].getSimpleName();
            Object part = parts.getOrDefault(method.getName(), parts.get(kindOfPart));
            if (part != null) call(builder, method.getName(), part);
        }
        return call(builder, "build");
    }
}
