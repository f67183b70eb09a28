#!/usr/bin/env bash
# A private etcd for tests, in a temporary folder, on a free port of this machine.
#
#   eval "$(scripts/etcd.sh start)"   starts it, and sets IC_TEST_ETCD (its URL) and IC_TEST_ETCD_DIR
#   scripts/etcd.sh kill              ends the server with SIGKILL
#   scripts/etcd.sh serve             starts it again, with what it had on the disk
#   scripts/etcd.sh signal NAME       sends a signal to the server
#   scripts/etcd.sh stop              stops it and removes the folder
#
# Needs the program etcd 3.4 or later (package `etcd-server`); it is installed where apt-get may.

set -euo pipefail

die() {
    echo "scripts/etcd.sh: $*" >&2
    exit 1
}

# shellcheck source=scripts/servers.sh
source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"

# Returns when the server answers.
serve() {
    local dir=$1 client peer
    client=http://127.0.0.1:$(cat "$dir/port")
    peer=http://127.0.0.1:$(cat "$dir/peer")
    setsid etcd --data-dir "$dir/data" --listen-client-urls "$client" --advertise-client-urls "$client" \
        --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" --initial-cluster "default=$peer" \
        >"$dir/log" 2>&1 </dev/null &
    echo $! >"$dir/pid"
    for _ in {1..200}; do
        if curl -sf -m 1 "$client/health" 2>/dev/null | grep -q true; then
            return
        fi
        sleep 0.05
    done
    die "the server did not start; its log: $(tail -n 5 "$dir/log" 2>/dev/null)"
}

start() {
    local dir
    if ! command -v etcd >/dev/null && command -v apt-get >/dev/null 2>&1 && [[ $(id -u) == 0 ]]; then
        # Without its service: the tests start a server of their own.
        apt-get update -qq >&2 && RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive \
            apt-get install -y -qq --no-install-recommends etcd-server >/dev/null 2>&1 || true
    fi
    command -v etcd >/dev/null || die "etcd is not installed: apt-get install etcd-server"
    dir=$(mktemp -d)
    free_port >"$dir/port"
    free_port >"$dir/peer"
    serve "$dir"
    echo "export IC_TEST_ETCD_DIR=$dir IC_TEST_ETCD=etcd://127.0.0.1:$(cat "$dir/port")"
}

stop() {
    remove_server "${IC_TEST_ETCD_DIR:-}"
}

case ${1:-} in
    start | stop) "$1" ;;
    kill) end_process "${IC_TEST_ETCD_DIR:?}/pid" ;;
    serve) serve "${IC_TEST_ETCD_DIR:?}" ;;
    signal) kill "-${2:?}" "$(cat "${IC_TEST_ETCD_DIR:?}/pid")" ;;
    *) die "start, kill, serve, signal NAME or stop" ;;
esac
