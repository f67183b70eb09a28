#!/usr/bin/env bash
# A private NATS server with JetStream for tests, in a temporary folder, on a free port of this machine.
#
#   eval "$(scripts/nats.sh start)"   starts it, and sets IC_TEST_NATS (its URL) and IC_TEST_NATS_DIR
#   scripts/nats.sh kill              ends the server with SIGKILL
#   scripts/nats.sh serve             starts it again, with what it had on the disk
#   scripts/nats.sh stop              stops it and removes the folder
#
# Needs the program nats-server 2.9 or later (package `nats-server`); it is installed where apt-get may.

set -euo pipefail

die() {
    echo "scripts/nats.sh: $*" >&2
    exit 1
}

# shellcheck source=scripts/servers.sh
source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"

# Returns when the server takes connections.
serve() {
    local dir=$1 port
    port=$(cat "$dir/port")
    setsid nats-server --addr 127.0.0.1 --port "$port" --jetstream --store_dir "$dir/data" --pid "$dir/pid" --log "$dir/log" \
        >/dev/null 2>&1 </dev/null &
    for _ in {1..200}; do
        if grep -q "Server is ready" "$dir/log" 2>/dev/null && (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            return
        fi
        sleep 0.05
    done
    die "the server did not start; its log: $(tail -n 5 "$dir/log" 2>/dev/null)"
}

start() {
    local dir
    if ! command -v nats-server >/dev/null && command -v apt-get >/dev/null 2>&1 && [[ $(id -u) == 0 ]]; then
        # Without its service: the tests start a server of their own.
        apt-get update -qq >&2 && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends nats-server >/dev/null 2>&1 || true
    fi
    command -v nats-server >/dev/null || die "NATS is not installed: apt-get install nats-server"
    dir=$(mktemp -d)
    free_port >"$dir/port"
    serve "$dir"
    echo "export IC_TEST_NATS_DIR=$dir IC_TEST_NATS=nats://127.0.0.1:$(cat "$dir/port")"
}

end_server() {
    local dir=$1
    end_process "$dir/pid" || return 0
    rm -f "$dir/pid" "$dir/log"
}

stop() {
    local dir=${IC_TEST_NATS_DIR:-}
    if [[ -n $dir && -d $dir ]]; then
        end_server "$dir"
        rm -rf "$dir"
    fi
}

case ${1:-} in
    start | stop) "$1" ;;
    kill) end_server "${IC_TEST_NATS_DIR:?}" ;;
    serve) serve "${IC_TEST_NATS_DIR:?}" ;;
    *) die "start, kill, serve or stop" ;;
esac
