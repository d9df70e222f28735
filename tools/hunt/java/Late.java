package org.apache.kafka.controller;

import java.lang.invoke.*;
import java.lang.reflect.*;
import java.util.*;
import java.util.stream.Collectors;

/**
 * Bridges the differences between releases by reflection: finds methods by name, parameters by type. A
 * call passes the arguments of the newest release in order; an older method takes those that fit.
 */
final class Late {
    private record Call(Method method, MethodHandle handle, int[] chosen) { }

    private static final Map<Class<?>, Map<String, Call>> CALLS = new HashMap<>();
    private static final Map<Class<?>, Map<Class<?>, Optional<Call>>> REPLAYS = new HashMap<>();
    private static final Map<Class<?>, Set<String>> NAMES = new HashMap<>();
    private static final Map<Class<?>, Map<String, Optional<Field>>> FIELDS = new HashMap<>();
    private static final Map<String, Object> TYPES = new HashMap<>();

    private Late() { }

    static Class<?> type(String... names) {
        for (String name : names) if (found(name) instanceof Class<?> kind) return kind;
        throw new IllegalStateException("no class of " + Arrays.toString(names));
    }

    /** The class of this name, or the name itself in releases without that class. */
    static Object found(String name) {
        return TYPES.computeIfAbsent(name, x -> {
            try {
                return Class.forName(x, false, Late.class.getClassLoader());
            } catch (ClassNotFoundException | NoClassDefFoundError e) {
                return x;
            }
        });
    }

    static Object constant(String name, String field) {
        try {
            return found(name) instanceof Class<?> kind ? kind.getField(field).get(null) : name;
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static boolean has(Object target, String name) {
        Class<?> kind = target instanceof Class<?> c ? c : target.getClass();
        return NAMES.computeIfAbsent(kind, c -> all(c).stream().map(Method::getName)
            .collect(Collectors.toSet())).contains(name);
    }

    /** Calls a method (static if the target is a class). Its exceptions are thrown on unchanged. */
    @SuppressWarnings("unchecked")
    static <T> T call(Object target, String name, Object... args) {
        Class<?> kind = target instanceof Class<?> c ? c : target.getClass();
        Map<String, Call> calls = CALLS.computeIfAbsent(kind, x -> new HashMap<>());
        Call call = calls.get(name);
        if (call == null) calls.put(name, call = chosen(kind, name, args));
        return (T) run(call, target, args);
    }

    private static Object run(Call call, Object target, Object... args) {
        boolean isStatic = Modifier.isStatic(call.method.getModifiers());
        Object[] given = new Object[call.chosen.length + (isStatic ? 0 : 1)];
        if (!isStatic) given[0] = target;
        int first = isStatic ? 0 : 1;
        for (int i = 0; i < call.chosen.length; i++) given[i + first] = args[call.chosen[i]];
        try {
            return (Object) call.handle.invokeExact(given);
        } catch (Throwable e) {
            throw Late.<RuntimeException>as(e);
        }
    }

    @SuppressWarnings("unchecked")
    private static <E extends Throwable> E as(Throwable e) throws E { throw (E) e; }

    /** Replays a record in a manager or a delta, if it has a `replay` for the record's type. */
    static void replay(Object target, Object record, long at) {
        Optional<Call> call = REPLAYS.computeIfAbsent(target.getClass(), x -> new HashMap<>())
            .computeIfAbsent(record.getClass(), kind -> Arrays.stream(target.getClass().getDeclaredMethods())
                .filter(m -> m.getName().equals("replay") && m.getParameterTypes()[0] == kind).findFirst()
                .map(m -> called(m, fit(m.getParameterTypes(), new Object[] {record, at}))));
        if (call.isPresent()) run(call.get(), target, record, at);
    }

    private static Call chosen(Class<?> kind, String name, Object[] args) {
        for (Method method : all(kind)) {
            int[] fit = method.getName().equals(name) ? fit(method.getParameterTypes(), args) : null;
            if (fit == null || method.isBridge()) continue;
            return called(method, fit);
        }
        throw new IllegalStateException(kind.getName() + " has no " + name + " for "
            + Arrays.toString(args));
    }

    private static Call called(Method method, int[] fit) {
        method.setAccessible(true);
        try {
            MethodHandle handle = MethodHandles.lookup().unreflect(method);
            int count = handle.type().parameterCount();
            handle = handle.asFixedArity().asType(handle.type().generic());
            return new Call(method, handle.asSpreader(Object[].class, count), fit);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    /** For each parameter, the index of the first unused argument of its type; null if one has none. */
    private static int[] fit(Class<?>[] parameters, Object[] args) {
        int[] chosen = new int[parameters.length];
        boolean[] taken = new boolean[args.length];
        for (int i = 0; i < parameters.length; i++) {
            int at = 0;
            while (at < args.length && (taken[at] || !boxed(parameters[i]).isInstance(args[at]))) at++;
            if (at == args.length) return null;
            taken[at] = true;
            chosen[i] = at;
        }
        return chosen;
    }

    private static Class<?> boxed(Class<?> kind) {
        if (!kind.isPrimitive()) return kind;
        return MethodHandles.constant(kind, zero(kind)).type().wrap().returnType();
    }

    private static Object zero(Class<?> kind) {
        return java.lang.reflect.Array.get(java.lang.reflect.Array.newInstance(kind, 1), 0);
    }

    private static List<Method> all(Class<?> kind) {
        List<Method> found = new ArrayList<>();
        for (Class<?> c = kind; c != null; c = c.getSuperclass()) {
            found.addAll(List.of(c.getDeclaredMethods()));
            for (Class<?> face : c.getInterfaces()) found.addAll(List.of(face.getMethods()));
        }
        return found;
    }

    /** A field's value, or `otherwise` in releases without that field. */
    @SuppressWarnings("unchecked")
    static <T> T field(Object target, String name, T otherwise) {
        Optional<Field> field = FIELDS.computeIfAbsent(target.getClass(), x -> new HashMap<>())
            .computeIfAbsent(name, x -> Optional.ofNullable(declared(target.getClass(), x)));
        try {
            return field.isEmpty() ? otherwise : (T) field.get().get(target);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    static void set(Object target, String name, Object value) {
        try {
            declared(target.getClass(), name).set(target, value);
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    /** An object made without a constructor, for a parameter that is required but not used here. */
    static Object blank(Class<?> kind) {
        try {
            Field unsafe = sun.misc.Unsafe.class.getDeclaredField("theUnsafe");
            unsafe.setAccessible(true);
            return ((sun.misc.Unsafe) unsafe.get(null)).allocateInstance(kind);
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    private static Field declared(Class<?> kind, String name) {
        for (Class<?> c = kind; c != null; c = c.getSuperclass()) {
            for (Field field : c.getDeclaredFields()) {
                if (!field.getName().equals(name)) continue;
                field.setAccessible(true);
                return field;
            }
        }
        return null;
    }

    /** A manager of the controller from its builder, whose setters are filled by name or by type. */
    static <T> T built(Class<T> kind, Map<String, Object> parts) {
        try {
            Constructor<?> constructor = type(kind.getName() + "$Builder").getDeclaredConstructor();
            constructor.setAccessible(true);
            Object builder = constructor.newInstance();
            for (Method method : builder.getClass().getDeclaredMethods()) {
                if (!method.getName().startsWith("set") || method.getParameterCount() != 1) continue;
                Object part = parts.getOrDefault(method.getName(),
                    parts.get(method.getParameterTypes()[0].getSimpleName()));
                if (part == null) continue;
                method.setAccessible(true);
                method.invoke(builder, part);
            }
            return kind.cast(Late.<Object>call(builder, "build"));
        } catch (InvocationTargetException e) {
            throw Late.<RuntimeException>as(e.getCause());
        } catch (ReflectiveOperationException e) {
            throw new IllegalStateException(e);
        }
    }

    static boolean can(Class<?> kind, Object... args) {
        return Arrays.stream(kind.getDeclaredConstructors())
            .anyMatch(c -> c.getParameterCount() > 0 && fit(c.getParameterTypes(), args) != null);
    }

    /** A new object, from the longest constructor whose parameters these arguments fill. */
    @SuppressWarnings("unchecked")
    static <T> T made(Class<T> kind, Object... args) {
        Constructor<?>[] constructors = kind.getDeclaredConstructors();
        Arrays.sort(constructors, Comparator.comparing(c -> -c.getParameterCount()));
        for (Constructor<?> constructor : constructors) {
            int[] fit = fit(constructor.getParameterTypes(), args);
            if (fit == null) continue;
            constructor.setAccessible(true);
            try {
                return (T) constructor.newInstance(Arrays.stream(fit).mapToObj(i -> args[i]).toArray());
            } catch (InvocationTargetException e) {
                throw Late.<RuntimeException>as(e.getCause());
            } catch (ReflectiveOperationException e) {
                throw new IllegalStateException(e);
            }
        }
        throw new IllegalStateException("no constructor of " + kind + " for " + Arrays.toString(args));
    }
}
