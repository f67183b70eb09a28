#!/usr/bin/env bash
# A private PostgreSQL for tests, in a temporary folder, on a free port of this machine.
#
#   eval "$(scripts/postgres.sh start)"   starts it, and sets IC_TEST_POSTGRES (its URL) and IC_TEST_POSTGRES_DIR
#   scripts/postgres.sh kill              ends all its processes with SIGKILL
#   scripts/postgres.sh serve             starts it again
#   scripts/postgres.sh stop              stops it and removes its folder
#
# Needs the programs of the package `postgresql` (initdb, pg_ctl); it is installed where apt-get may. The server syncs to
# the disk as in production: tests that kill it would prove nothing otherwise.

set -euo pipefail

die() {
    echo "scripts/postgres.sh: $*" >&2
    exit 1
}

# The newest initdb of the distribution's folders, or whatever is on the path.
binaries() {
    local found
    found=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1 || true)
    if [[ -z $found ]] && command -v initdb >/dev/null 2>&1; then
        found=$(dirname "$(readlink -f "$(command -v initdb)")")
    fi
    echo "$found"
}

# PostgreSQL refuses to run as root.
as_owner() {
    if [[ $(id -u) == 0 ]]; then
        setpriv --reuid=postgres --regid=postgres --init-groups -- "$@"
    else
        "$@"
    fi
}

free_port() {
    local port
    for _ in {1..50}; do
        port=$((20000 + RANDOM % 20000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return
        fi
    done
    die "no free port was found"
}

serve() {
    local bin=$1 dir=$2 port=$3
    as_owner "$bin/pg_ctl" -s -w -t 60 -D "$dir/data" -l "$dir/log" \
        -o "-p $port -k $dir -c listen_addresses=127.0.0.1 -c max_connections=200" start >&2 ||
        die "the server did not start; its log: $(tail -n 5 "$dir/log" 2>/dev/null)"
}

start() {
    local bin dir port
    bin=$(binaries)
    if [[ -z $bin ]] && command -v apt-get >/dev/null 2>&1 && [[ $(id -u) == 0 ]]; then
        apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends postgresql >&2 || true
        bin=$(binaries)
    fi
    [[ -n $bin ]] || die "PostgreSQL is not installed: apt-get install postgresql, or set IC_TEST_POSTGRES to a server's URL"
    dir=$(mktemp -d)
    if [[ $(id -u) == 0 ]]; then
        chown postgres:postgres "$dir"
    fi
    as_owner "$bin/initdb" -D "$dir/data" -U test -A trust --no-sync >"$dir.initdb" 2>&1 || die "initdb failed: $(tail -n 5 "$dir.initdb")"
    rm -f "$dir.initdb"
    port=$(free_port)
    serve "$bin" "$dir" "$port"
    echo "export IC_TEST_POSTGRES_DIR=$dir IC_TEST_POSTGRES=postgres://test@127.0.0.1:$port/postgres"
}

# Its children first: what is left of them would keep the shared memory, and with it the next server from starting.
kill() {
    local dir=${IC_TEST_POSTGRES_DIR:?} parent
    parent=$(head -n 1 "$dir/data/postmaster.pid")
    builtin kill -STOP "$parent"
    # shellcheck disable=SC2046 # a list of numbers
    builtin kill -KILL $(pgrep -P "$parent") "$parent"
    while builtin kill -0 "$parent" 2>/dev/null; do
        sleep 0.01
    done
}

serve_again() {
    local dir=${IC_TEST_POSTGRES_DIR:?} port=${IC_TEST_POSTGRES##*:}
    serve "$(binaries)" "$dir" "${port%%/*}"
}

stop() {
    local dir=${IC_TEST_POSTGRES_DIR:-}
    if [[ -n $dir && -d $dir/data ]]; then
        as_owner "$(binaries)/pg_ctl" -s -D "$dir/data" -m immediate stop >&2 || true
        rm -rf "$dir"
    fi
}

case ${1:-} in
    start | kill | stop) "$1" ;;
    serve) serve_again ;;
    *) die "start, kill, serve or stop" ;;
esac
