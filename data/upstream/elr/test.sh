#!/usr/bin/env bash
# Runs tests.java on Kafka's published jars, as they are and repaired: ./test.sh [RELEASE ...]
# TESTS=../no-leader ./test.sh runs those of another report.
#
# Needs Java 17 and Maven, and makes a folder of its own. Kafka's ReplicationControlManagerTest is
# taken from its published test sources, tests.java is put at its end, and the new methods are run.
# "Repaired" compiles the two published source files with *.sed applied, in front of the jars.
# 4.2.2 and 4.4.0 have no test jars and no sources: they get the test class of 4.2.1 and 4.3.1, and
# repaired classes from those sources (the builder's code is the same in each pair).
set -euo pipefail
here=$(cd "$(dirname "$0")/${TESTS:-.}" && pwd)
work=${WORK:-$(mktemp -d)}
trap '[ -n "${WORK:-}" ] || rm -rf "$work"' EXIT
group=org.apache.kafka
package=org/apache/kafka/controller
methods=$(sed -n 's/^ *public void \(test[A-Za-z]*\)().*/\1/p' "$here/tests.java")

dependency() {  # artifact version classifier type
    echo "<dependency><groupId>$group</groupId><artifactId>$1</artifactId><version>$2</version>
    <classifier>$3</classifier></dependency>"
}

resolve() {  # release tests: prints the class path
    local folder=$work/$1 name
    mkdir -p "$folder"
    {
        echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        echo '<groupId>report</groupId><artifactId>elr</artifactId><version>1</version><dependencies>'
        dependency kafka_2.13 "$1" ""
        for name in kafka-metadata kafka-clients kafka-server-common; do dependency $name "$2" test; done
        echo '<dependency><groupId>org.junit.platform</groupId>
          <artifactId>junit-platform-console-standalone</artifactId><version>1.13.1</version></dependency>
          <dependency><groupId>org.mockito</groupId><artifactId>mockito-core</artifactId>
          <version>5.14.2</version></dependency></dependencies></project>'
    } > "$folder/pom.xml"
    (cd "$folder" && mvn -q -B -Dstyle.color=never dependency:build-classpath -Dmdep.outputFile=path.txt) > /dev/null
    cat "$folder/path.txt"
}

source_of() {  # version classifier file target
    mvn -q -B -Dstyle.color=never dependency:copy -Dartifact=$group:kafka-metadata:"$1":jar:"$2" \
        -DoutputDirectory="$work/sources" > /dev/null
    unzip -qo "$work/sources/kafka-metadata-$1-$2.jar" "$package/$3" -d "$4"
}

moved() {  # release file ...: classes that have another package since 4.4.0
    [ "$1" != 4.4.0 ] || sed -i 's/kafka.common.utils.LogContext/kafka.common.utils.internals.LogContext/' "${@:2}"
}

play() {  # release tests class-path out: runs the methods, prints a line
    local selected=() method name=org.apache.kafka.controller.ReplicationControlManagerTest
    for method in $methods; do selected+=("--select-method=$name#$method"); done
    java -cp "$4:$3" org.junit.platform.console.ConsoleLauncher execute --disable-banner \
        --details=tree --details-theme=ascii --disable-ansi-colors "${selected[@]}" > "$4/report.txt" 2>&1 || true
    for method in $methods; do
        if grep -q "$method() .*\[OK\]" "$4/report.txt"; then echo "  pass  $method"
        else
            reason=$(grep -m1 "$method() .*\[X\]" "$4/report.txt" || echo "not run: see $4/report.txt")
            echo "  FAIL  $method: ${reason#*\[X\] }"
        fi
    done
}

for release in ${*:-4.1.2 4.2.1 4.2.2 4.3.1 4.4.0}; do
    case $release in 4.2.2) tests=4.2.1 ;; 4.4.0) tests=4.3.1 ;; *) tests=$release ;; esac
    path=$(resolve "$release" "$tests")
    out=$work/$release/classes fixed=$work/$release/repaired
    mkdir -p "$out" "$fixed"
    source_of "$tests" test-sources ReplicationControlManagerTest.java "$work/$release"
    file=$work/$release/$package/ReplicationControlManagerTest.java
    sed -i '$ d' "$file"  # the brace that ends the class
    { cat "$here/tests.java"; echo '}'; } >> "$file"
    moved "$release" "$file"
    javac -nowarn -proc:none -cp "$path" -d "$out" "$file" 2>&1 | grep -v '^Note:' || true
    echo "Kafka $release, with the test class of $tests"
    play "$release" "$tests" "$path" "$out"
    for name in $(cd "$here" && basename -s .sed -- *.sed); do
        source_of "$tests" sources "$name.java" "$work/$release/edited"
        sed -i -f "$here/$name.sed" "$work/$release/edited/$package/$name.java"
    done
    moved "$release" "$work/$release/edited/$package"/*.java
    echo "Kafka $release, repaired"
    if javac -nowarn -proc:none -cp "$path" -d "$fixed" "$work/$release/edited/$package"/*.java \
        > "$work/$release/javac.txt" 2>&1; then
        cp -r "$out/." "$fixed"
        play "$release" "$tests" "$path" "$fixed"
    else
        echo "  not compiled: $(grep -m1 error "$work/$release/javac.txt")"
    fi
done
