#!/usr/bin/env bash
# Runs WholeControllersTest on Kafka's published jars, as they are and repaired:
#
#   ./test.sh      4.3.1; 4.4.0 has no test jars, and a class that those of 4.3.1 need has moved
#
# Needs Java 17 and Maven, and makes a folder of its own. "Repaired" compiles the published classes with
# the *.sed files applied, in front of the jars.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
release=4.3.1 package=org/apache/kafka/controller
work=${WORK:-$(mktemp -d)}
trap '[ -n "${WORK:-}" ] || rm -rf "$work"' EXIT
mkdir -p "$work"/{classes,repaired,sources}
kafka() {
    echo "<dependency><groupId>org.apache.kafka</groupId><artifactId>$1</artifactId>
    <version>$2</version><classifier>$3</classifier></dependency>"
}
{
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
    <groupId>report</groupId><artifactId>controller</artifactId><version>1</version><dependencies>'
    kafka kafka_2.13 "$release" ""
    for name in kafka-metadata kafka-clients kafka-server-common kafka-raft; do kafka $name $release test; done
    echo '<dependency><groupId>org.junit.platform</groupId>
    <artifactId>junit-platform-console-standalone</artifactId><version>1.13.1</version></dependency>
    <dependency><groupId>org.mockito</groupId><artifactId>mockito-core</artifactId>
    <version>5.14.2</version></dependency></dependencies></project>'
} > "$work/pom.xml"
(cd "$work" && mvn -q -B -Dstyle.color=never dependency:build-classpath -Dmdep.outputFile=path.txt > /dev/null)
path=$(cat "$work/path.txt")
mvn -q -B -Dstyle.color=never dependency:copy -DoutputDirectory="$work" \
    -Dartifact=org.apache.kafka:kafka-metadata:$release:jar:sources > /dev/null
unzip -qo "$work/kafka-metadata-$release-sources.jar" "$package/*.java" -d "$work/sources"
javac -nowarn -proc:none -cp "$path" -d "$work/classes" "$here/WholeControllersTest.java"
for class in ReplicationControlManager PartitionReassignmentRevert PartitionChangeBuilder; do
    sed -i -f "$here/$class.sed" "$work/sources/$package/$class.java"
    javac -nowarn -proc:none -cp "$work/repaired:$path" -d "$work/repaired" "$work/sources/$package/$class.java"
done

play() {
    java -cp "$1:$path" org.junit.platform.console.ConsoleLauncher execute --disable-banner \
        --details=tree --details-theme=ascii --disable-ansi-colors \
        --select-class=org.apache.kafka.controller.WholeControllersTest 2>&1 |
        sed -n 's/^[ |+.`'"'"'-]*\(test[A-Za-z]*\)() *\(.*\)/  \1 \2/p' || true
}

echo "Kafka $release"
play "$work/classes"
echo "Kafka $release, repaired"
play "$work/repaired:$work/classes"
