#!/bin/sh
# hadoop, hdfs, yarn and mapred of a cluster that gradreduce made: one Java each, and quiet.
JAVA_HOME='@JAVA_HOME@'
HADOOP_CONF_DIR=${HADOOP_CONF_DIR:-'@CONF_DIR@'}
jars='@CLASS_PATH@'
export JAVA_HOME HADOOP_CONF_DIR

usage() {
    echo "usage: hadoop fs|jar|version|classpath|checknative|distcp|CLASS ..." >&2
    echo "       hdfs   dfs|dfsadmin|fsck|haadmin|getconf|groups|ec|snapshotDiff|debug|balancer|CLASS ..." >&2
    echo "       yarn   application|app|applicationattempt|container|logs|node|queue|rmadmin|top|CLASS ..." >&2
    echo "       mapred job|queue|streaming|CLASS ..." >&2
    exit 2
}

[ "$1" = --config ] && { HADOOP_CONF_DIR=$2; shift 2; }
[ $# -gt 0 ] || usage
command=$1
shift
level=WARN
case $command in
    version)
        echo "Hadoop @VERSION@"
        exit ;;
    classpath)
        echo "$jars:$HADOOP_CONF_DIR"
        exit ;;
    fs | dfs) class=org.apache.hadoop.fs.FsShell ;;
    jar)
        level=INFO
        class=org.apache.hadoop.util.RunJar ;;
    streaming)
        level=INFO
        class=org.apache.hadoop.streaming.HadoopStreaming ;;
    job) class=org.apache.hadoop.mapred.JobClient ;;
    queue)
        class=org.apache.hadoop.mapred.JobQueueClient
        [ "${0##*/}" = yarn ] && class=org.apache.hadoop.yarn.client.cli.QueueCLI ;;
    dfsadmin) class=org.apache.hadoop.hdfs.tools.DFSAdmin ;;
    haadmin) class=org.apache.hadoop.hdfs.tools.DFSHAAdmin ;;
    fsck) class=org.apache.hadoop.hdfs.tools.DFSck ;;
    getconf) class=org.apache.hadoop.hdfs.tools.GetConf ;;
    groups) class=org.apache.hadoop.hdfs.tools.GetGroups ;;
    ec) class=org.apache.hadoop.hdfs.tools.ECAdmin ;;
    debug) class=org.apache.hadoop.hdfs.tools.DebugAdmin ;;
    balancer) class=org.apache.hadoop.hdfs.server.balancer.Balancer ;;
    snapshotDiff) class=org.apache.hadoop.hdfs.tools.snapshot.SnapshotDiff ;;
    application | app | applicationattempt | container)
        set -- "$command" "$@"
        class=org.apache.hadoop.yarn.client.cli.ApplicationCLI ;;
    logs) class=org.apache.hadoop.yarn.client.cli.LogsCLI ;;
    node) class=org.apache.hadoop.yarn.client.cli.NodeCLI ;;
    rmadmin) class=org.apache.hadoop.yarn.client.cli.RMAdminCLI ;;
    -*) usage ;;
    *.*) class=$command ;;
    *)
        echo "${0##*/}: no such command: $command" >&2
        usage ;;
esac
exec "$JAVA_HOME/bin/java" @OPTIONS@ -Xmx256m "-Dhadoop.root.logger=$level,console" \
    ${HADOOP_OPTS:-} ${HADOOP_CLIENT_OPTS:-} \
    -cp "$jars:$HADOOP_CONF_DIR${HADOOP_CLASSPATH:+:$HADOOP_CLASSPATH}" "$class" "$@"
