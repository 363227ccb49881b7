#!/bin/sh
# Fetches into build/ what some tests need: a Kafka broker and Spark's connector for it, Spark's
# connector for S3, or the servers of HDFS.
#
# PySpark ships Ivy with a command line of its own, so neither Maven nor Kafka need be installed.
# Usage: fetch-jars.sh PYTHON kafka|s3|hdfs
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

fetch_kafka() {
    [ -f build/kafka/.complete ] || {
        echo "Fetching Kafka 4.3.1 into build/kafka (44 MB)"
        fetch build/kafka org.apache.kafka kafka_2.13 4.3.1
        touch build/kafka/.complete
    }
    [ -f build/kafka-connector/.complete ] || {
        echo "Fetching Spark's Kafka connector into build/kafka-connector (11 MB)"
        # Jars of these versions work with Spark 4.3.0; not all are published for every version.
        connector="fetch build/kafka-connector"
        $connector org.apache.spark spark-sql-kafka-0-10_2.13 4.2.0 -notransitive
        $connector org.apache.spark spark-token-provider-kafka-0-10_2.13 4.0.0 -notransitive
        $connector org.apache.kafka kafka-clients 4.3.1 -notransitive
        $connector org.apache.commons commons-pool2 2.12.1 -notransitive
        touch build/kafka-connector/.complete
    }
}

fetch_s3() {
    [ -f build/s3/.complete ] || {
        echo "Fetching Hadoop's S3A filesystem into build/s3 (18 MB)"
        # What hadoop-aws asks for, the bundle of all of Amazon's services, has 686 MB.
        fetch build/s3 org.apache.hadoop hadoop-aws 3.5.0 -notransitive
        fetch build/s3 software.amazon.awssdk s3-transfer-manager 2.35.4
        fetch build/s3 software.amazon.awssdk sts 2.35.4
        fetch build/s3 software.amazon.s3.analyticsaccelerator analyticsaccelerator-s3 1.3.1
        touch build/s3/.complete
    }
}

fetch_hdfs() {
    [ -f build/hdfs/.complete ] || {
        echo "Fetching the servers of HDFS into build/hdfs (56 MB)"
        fetch build/hdfs org.apache.hadoop hadoop-client-minicluster 3.5.0 -notransitive
        touch build/hdfs/.complete
    }
}

mkdir -p build
"fetch_$2"
