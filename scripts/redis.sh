#!/usr/bin/env bash
# A private Redis for tests, in a temporary folder, on a free port of this machine, with a replica.
#
#   eval "$(scripts/redis.sh start)"   starts it, and sets IC_TEST_REDIS (its URL) and IC_TEST_REDIS_DIR
#   scripts/redis.sh kill              ends the server with SIGKILL
#   scripts/redis.sh serve             starts it again, from its last snapshot: it forgets the last seconds
#   scripts/redis.sh promote           ends the server with SIGKILL, and puts the replica in its place, at its address
#   scripts/redis.sh flush             deletes everything in it
#   scripts/redis.sh signal NAME       sends a signal to the server
#   scripts/redis.sh stop              stops both and removes the folder
#
# Needs the programs redis-server and redis-cli (packages `redis-server`, `redis-tools`); they are installed where apt-get may.

set -euo pipefail

die() {
    echo "scripts/redis.sh: $*" >&2
    exit 1
}

# shellcheck source=scripts/servers.sh
source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"

port() {
    local port=${IC_TEST_REDIS##*:}
    echo "${port%%/*}"
}

cli() {
    local port=$1
    shift
    redis-cli -p "$port" "$@" >/dev/null
}

# serve_at FOLDER PORT OPTIONS...: returns when the server answers.
serve_at() {
    local dir=$1 port=$2
    shift 2
    mkdir -p "$dir"
    redis-server --port "$port" --bind 127.0.0.1 --dir "$dir" --daemonize yes --pidfile "$dir/pid" --logfile "$dir/log" \
        --save 2 1 --repl-diskless-sync-delay 0 "$@" >&2
    for _ in {1..200}; do
        if [[ -s $dir/pid ]] && cli "$port" PING 2>/dev/null; then
            return
        fi
        sleep 0.05
    done
    die "the server did not start; its log: $(tail -n 5 "$dir/log" 2>/dev/null)"
}

start() {
    local dir port replica
    if ! command -v redis-server >/dev/null && command -v apt-get >/dev/null 2>&1 && [[ $(id -u) == 0 ]]; then
        apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends redis-server >&2 || true
    fi
    command -v redis-server >/dev/null || die "Redis is not installed: apt-get install redis-server"
    dir=$(mktemp -d)
    port=$(free_port)
    serve_at "$dir/server" "$port"
    replica=$(free_port)
    serve_at "$dir/replica" "$replica" --replicaof 127.0.0.1 "$port"
    echo "$replica" >"$dir/replica/port"
    echo "export IC_TEST_REDIS_DIR=$dir IC_TEST_REDIS=redis://127.0.0.1:$port"
}

signal() {
    builtin kill "-$1" "$(cat "${IC_TEST_REDIS_DIR:?}/server/pid")"
}

kill() {
    end_process "${IC_TEST_REDIS_DIR:?}/server/pid"
}

promote() {
    local replica
    replica=$(cat "${IC_TEST_REDIS_DIR:?}/replica/port")
    kill
    cli "$replica" REPLICAOF NO ONE
    cli "$replica" CONFIG SET port "$(port)"
}

stop() {
    local dir=${IC_TEST_REDIS_DIR:-} one
    if [[ -n $dir && -d $dir ]]; then
        for one in server replica; do
            builtin kill -KILL "$(cat "$dir/$one/pid")" 2>/dev/null || true
        done
        rm -rf "$dir"
    fi
}

case ${1:-} in
    start | kill | promote | stop) "$1" ;;
    serve) serve_at "${IC_TEST_REDIS_DIR:?}/server" "$(port)" ;;
    flush) cli "$(port)" FLUSHALL ;;
    signal) signal "${2:?}" ;;
    *) die "start, kill, serve, promote, flush, signal NAME or stop" ;;
esac
