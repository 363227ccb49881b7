#!/bin/sh
# Fetches a Kafka broker and Spark's Kafka connector into build/, for make test-kafka.
#
# PySpark ships Ivy with a command line of its own, so neither Maven nor Kafka need be installed.
# Usage: fetch-kafka.sh PYTHON
set -eu

python=$1
jars=$("$python" -c 'import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), "jars"))')
ivy=$(ls "$jars"/ivy-*.jar)

fetch() { # FOLDER GROUP ARTIFACT VERSION [OPTION]
    java -jar "$ivy" -cache build/ivy -confs default -types jar bundle ${5:-} \
        -dependency "$2" "$3" "$4" \
        -retrieve "$1/[artifact]-[revision](-[classifier]).[ext]" >build/ivy.log 2>&1 ||
        { cat build/ivy.log; echo "Ivy cannot fetch $2:$3:$4, see above"; exit 1; }
}

mkdir -p build
if [ ! -f build/kafka/.complete ]; then
    echo "Fetching Kafka 4.3.1 into build/kafka (44 MB)"
    fetch build/kafka org.apache.kafka kafka_2.13 4.3.1
    touch build/kafka/.complete
fi
if [ ! -f build/kafka-connector/.complete ]; then
    echo "Fetching Spark's Kafka connector into build/kafka-connector (11 MB)"
    # Jars of these versions work with Spark 4.3.0; not all of them are published for every version.
    connector="fetch build/kafka-connector"
    $connector org.apache.spark spark-sql-kafka-0-10_2.13 4.2.0 -notransitive
    $connector org.apache.spark spark-token-provider-kafka-0-10_2.13 4.0.0 -notransitive
    $connector org.apache.kafka kafka-clients 4.3.1 -notransitive
    $connector org.apache.commons commons-pool2 2.12.1 -notransitive
    touch build/kafka-connector/.complete
fi
