#!/usr/bin/env bash
# A private RabbitMQ for tests, in a temporary folder, on free ports of this machine.
#
#   eval "$(scripts/rabbitmq.sh start)"   starts it, and sets IC_TEST_RABBITMQ (its URL) and IC_TEST_RABBITMQ_DIR
#   scripts/rabbitmq.sh kill              ends the server with SIGKILL
#   scripts/rabbitmq.sh serve             starts it again, with what it had on the disk
#   scripts/rabbitmq.sh stop              stops it and removes the folder
#
# Needs RabbitMQ 3.10 or later (package `rabbitmq-server`); it is installed where apt-get may.

set -euo pipefail

die() {
    echo "scripts/rabbitmq.sh: $*" >&2
    exit 1
}

# shellcheck source=scripts/servers.sh
source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"

readonly SERVER=/usr/lib/rabbitmq/bin/rabbitmq-server

# The settings of the server of a folder: all that it writes is in there, and its port mapper is its own.
settings() {
    local dir=$1
    export HOME=$dir RABBITMQ_HOME=/usr/lib/rabbitmq RABBITMQ_MNESIA_BASE=$dir/data RABBITMQ_LOG_BASE=$dir/log \
        RABBITMQ_CONFIG_FILE=$dir/rabbitmq.conf RABBITMQ_ENABLED_PLUGINS_FILE=$dir/plugins RABBITMQ_CONF_ENV_FILE=/dev/null \
        RABBITMQ_NODENAME=ic@localhost RABBITMQ_PID_FILE=$dir/pid RABBITMQ_LOGS=$dir/log/server.log \
        RABBITMQ_GENERATED_CONFIG_DIR=$dir/config RABBITMQ_ADVANCED_CONFIG_FILE=$dir/advanced.config \
        RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS="+sbwt none +sbwtdcpu none +sbwtdio none"
    ERL_EPMD_PORT=$(cat "$dir/epmd")
    RABBITMQ_DIST_PORT=$(cat "$dir/dist")
    export ERL_EPMD_PORT ERL_EPMD_ADDRESS=127.0.0.1 RABBITMQ_DIST_PORT
}

# Returns when the server takes connections.
serve() {
    local dir=$1 port
    port=$(cat "$dir/port")
    rm -f "$dir/pid"
    (
        settings "$dir"
        exec setsid "$SERVER"
    ) >"$dir/out" 2>&1 </dev/null &
    for _ in {1..600}; do
        # The port is open a moment before the server is ready; a client that comes too early is told to come again.
        if [[ -s $dir/pid ]] && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            return
        fi
        sleep 0.1
    done
    die "the server did not start; it said: $(tail -n 5 "$dir/out" "$dir/log/server.log" 2>/dev/null)"
}

start() {
    local dir port
    if [[ ! -x $SERVER ]] && command -v apt-get >/dev/null 2>&1 && [[ $(id -u) == 0 ]]; then
        # Without its service: the tests start a server of their own.
        apt-get update -qq >&2 && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends rabbitmq-server >/dev/null 2>&1 || true
    fi
    [[ -x $SERVER ]] || die "RabbitMQ is not installed: apt-get install rabbitmq-server"
    dir=$(mktemp -d)
    mkdir "$dir/log" "$dir/data" "$dir/config"
    for port in port epmd dist; do
        free_port >"$dir/$port"
    done
    echo "[]." >"$dir/plugins"
    echo "listeners.tcp.1 = 127.0.0.1:$(cat "$dir/port")" >"$dir/rabbitmq.conf"
    serve "$dir"
    echo "export IC_TEST_RABBITMQ_DIR=$dir IC_TEST_RABBITMQ=amqp://guest:guest@127.0.0.1:$(cat "$dir/port")/%2f"
}

stop() {
    local dir=${IC_TEST_RABBITMQ_DIR:-}
    if [[ -n $dir && -d $dir ]]; then
        end_process "$dir/pid" || true
        # Its port mapper goes when it has nobody left.
        (
            settings "$dir"
            epmd -kill >/dev/null 2>&1 || true
        )
        rm -rf "$dir"
    fi
}

case ${1:-} in
    start | stop) "$1" ;;
    kill) end_process "${IC_TEST_RABBITMQ_DIR:?}/pid" ;;
    serve) serve "${IC_TEST_RABBITMQ_DIR:?}" ;;
    *) die "start, kill, serve or stop" ;;
esac
