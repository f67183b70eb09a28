#!/usr/bin/env bash
# A private ZooKeeper for tests, in a temporary folder, on a free port of this machine.
#
#   eval "$(scripts/zookeeper.sh start)"   starts it, and sets IC_TEST_ZOOKEEPER (its URL) and IC_TEST_ZOOKEEPER_DIR
#   scripts/zookeeper.sh kill              ends the server with SIGKILL
#   scripts/zookeeper.sh serve             starts it again, with what it had on the disk
#   scripts/zookeeper.sh signal NAME       sends a signal to the server
#   scripts/zookeeper.sh stop              stops it and removes the folder
#
# Needs Java and the package `zookeeper` of Debian 12 or later; they are installed where apt-get may.

set -euo pipefail

JAR=/usr/share/java/zookeeper.jar

die() {
    echo "scripts/zookeeper.sh: $*" >&2
    exit 1
}

# shellcheck source=scripts/servers.sh
source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"

# Returns when the server answers.
serve() {
    local dir=$1 port said
    port=$(cat "$dir/port")
    setsid java -Xmx256m -cp "$dir:$JAR" -Dzookeeper.admin.enableServer=false -Dzookeeper.4lw.commands.whitelist=srvr \
        org.apache.zookeeper.server.ZooKeeperServerMain "$dir/zoo.cfg" >"$dir/log" 2>&1 </dev/null &
    echo $! >"$dir/pid"
    for _ in {1..400}; do
        # `ruok` is answered by a server that closes the connections of clients still; the mode is told by one that serves them.
        said=$({ exec 3<>"/dev/tcp/127.0.0.1/$port" && printf srvr >&3 && timeout 1 cat <&3; } 2>/dev/null) || true
        if [[ $said == *"Mode:"* ]]; then
            return
        fi
        sleep 0.05
    done
    die "the server did not start; its log: $(tail -n 5 "$dir/log" 2>/dev/null)"
}

start() {
    local dir port
    if ! { command -v java && [[ -e $JAR ]]; } >/dev/null && command -v apt-get >/dev/null 2>&1 && [[ $(id -u) == 0 ]]; then
        # The package has no service: the tests start a server of their own.
        apt-get update -qq >&2 && DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends zookeeper >/dev/null 2>&1 || true
    fi
    command -v java >/dev/null || die "Java is not installed: apt-get install default-jre-headless"
    [[ -e $JAR ]] || die "ZooKeeper is not installed: apt-get install zookeeper"
    dir=$(mktemp -d)
    port=$(free_port)
    echo "$port" >"$dir/port"
    printf '%s\n' "dataDir=$dir/data" "clientPort=$port" clientPortAddress=127.0.0.1 tickTime=2000 >"$dir/zoo.cfg"
    serve "$dir"
    echo "export IC_TEST_ZOOKEEPER_DIR=$dir IC_TEST_ZOOKEEPER=zk://127.0.0.1:$port"
}

stop() {
    remove_server "${IC_TEST_ZOOKEEPER_DIR:-}"
}

case ${1:-} in
    start | stop) "$1" ;;
    kill) end_process "${IC_TEST_ZOOKEEPER_DIR:?}/pid" ;;
    serve) serve "${IC_TEST_ZOOKEEPER_DIR:?}" ;;
    signal) kill "-${2:?}" "$(cat "${IC_TEST_ZOOKEEPER_DIR:?}/pid")" ;;
    *) die "start, kill, serve, signal NAME or stop" ;;
esac
