#!/usr/bin/env bash
# A private PostgreSQL for tests, in a temporary folder, on a free port of this machine.
#
#   eval "$(scripts/postgres.sh start)"   starts it, and sets IC_TEST_POSTGRES (its URL) and IC_TEST_POSTGRES_DIR; and a
#                                         PgBouncer before it, in transaction mode: IC_TEST_PGBOUNCER is its URL
#   scripts/postgres.sh kill              ends all its processes with SIGKILL
#   scripts/postgres.sh serve             starts it again
#   scripts/postgres.sh standby           makes a standby that follows it
#   scripts/postgres.sh promote           kills the server, promotes the standby and leads PgBouncer to it; what goes to
#                                         IC_TEST_POSTGRES itself finds no server then
#   scripts/postgres.sh step SECONDS      steps its clock: +8 or -8, in total since its start. Needs IC_TEST_CLOCK=steps at
#                                         `start`, with which the server runs under libfaketime (package `faketime`)
#   scripts/postgres.sh stop              stops it and removes its folder
#
# Needs the programs of the packages `postgresql` (initdb, pg_ctl) and `pgbouncer`; they are installed where apt-get may. The server syncs to
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

# shellcheck source=scripts/servers.sh
source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"

# The settings with which the server's clock adds what a file states.
clock() {
    local dir=$1 library
    [[ -f $dir/clock ]] || return 0
    if ! ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 && [[ $(id -u) == 0 ]]; then
        apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends faketime >&2 || true
    fi
    library=$(ls /usr/lib/*/faketime/libfaketime.so.1 2>/dev/null | head -n 1)
    [[ -n $library ]] || die "libfaketime is not installed: apt-get install faketime"
    echo "LD_PRELOAD=$library FAKETIME_TIMESTAMP_FILE=$dir/clock FAKETIME_NO_CACHE=1 DONT_FAKE_MONOTONIC=1"
}

# serve BINARIES FOLDER PORT [DATA]
serve() {
    local bin=$1 dir=$2 port=$3 data=${4:-data} settings
    settings=$(clock "$dir")
    # shellcheck disable=SC2086 # a list of settings
    as_owner env $settings "$bin/pg_ctl" -s -w -t 60 -D "$dir/$data" -l "$dir/log" \
        -o "-p $port -k $dir -c listen_addresses=127.0.0.1 -c max_connections=200" start >&2 ||
        die "the server did not start; its log: $(tail -n 5 "$dir/log" 2>/dev/null)"
}

# Two connections to a server for each database, so that clients have to share them.
pool() {
    local dir=$1 port=$2 listen=$3 bouncer
    bouncer=$(command -v pgbouncer || ls /usr/sbin/pgbouncer 2>/dev/null || true)
    if [[ -z $bouncer ]] && command -v apt-get >/dev/null 2>&1 && [[ $(id -u) == 0 ]]; then
        apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends pgbouncer >&2 || true
        bouncer=$(command -v pgbouncer || true)
    fi
    [[ -n $bouncer ]] || die "PgBouncer is not installed: apt-get install pgbouncer"
    cat >"$dir/pgbouncer.ini" <<-END
	[databases]
	* = host=127.0.0.1 port=$port user=test
	[pgbouncer]
	listen_addr = 127.0.0.1
	listen_port = $listen
	unix_socket_dir =
	auth_type = any
	pool_mode = transaction
	default_pool_size = 2
	max_client_conn = 500
	server_idle_timeout = 5
	logfile = $dir/pgbouncer.log
	pidfile = $dir/pgbouncer.pid
	END
    as_owner "$bouncer" -q -d "$dir/pgbouncer.ini" >&2 ||
        die "PgBouncer did not start; its log: $(tail -n 5 "$dir/pgbouncer.log" 2>/dev/null)"
}

start() {
    local bin dir port listen
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
    if [[ ${IC_TEST_CLOCK:-} == steps ]]; then
        echo "+0s" >"$dir/clock"
    fi
    port=$(free_port)
    serve "$bin" "$dir" "$port"
    listen=$(free_port)
    pool "$dir" "$port" "$listen"
    echo "export IC_TEST_POSTGRES_DIR=$dir IC_TEST_POSTGRES=postgres://test@127.0.0.1:$port/postgres" \
        "IC_TEST_PGBOUNCER=postgres://test@127.0.0.1:$listen/postgres"
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

standby() {
    local dir=${IC_TEST_POSTGRES_DIR:?} bin primary port
    bin=$(binaries)
    primary=${IC_TEST_POSTGRES##*:}
    as_owner "$bin/pg_basebackup" -h 127.0.0.1 -p "${primary%%/*}" -U test -D "$dir/standby" -R -X stream -c fast >&2
    port=$(free_port)
    serve "$bin" "$dir" "$port" standby
    echo "$port" >"$dir/standby.port"
}

promote() {
    local dir=${IC_TEST_POSTGRES_DIR:?} port
    port=$(cat "$dir/standby.port")
    kill
    as_owner "$(binaries)/pg_ctl" -s -w -D "$dir/standby" promote >&2
    sed -i "s/ port=[0-9]*/ port=$port/" "$dir/pgbouncer.ini"
    builtin kill -HUP "$(cat "$dir/pgbouncer.pid")"
}

step() {
    local dir=${IC_TEST_POSTGRES_DIR:?} by=${1:?}
    [[ -f $dir/clock ]] || die "the clock of this server cannot be stepped; start it with IC_TEST_CLOCK=steps"
    echo "${by}s" >"$dir/clock.new"
    mv "$dir/clock.new" "$dir/clock"
}

stop() {
    local dir=${IC_TEST_POSTGRES_DIR:-}
    if [[ -n $dir && -d $dir/data ]]; then
        if [[ -f $dir/pgbouncer.pid ]]; then
            builtin kill -TERM "$(cat "$dir/pgbouncer.pid")" 2>/dev/null || true
        fi
        as_owner "$(binaries)/pg_ctl" -s -D "$dir/data" -m immediate stop >&2 || true
        if [[ -d $dir/standby ]]; then
            as_owner "$(binaries)/pg_ctl" -s -D "$dir/standby" -m immediate stop >&2 || true
        fi
        rm -rf "$dir"
    fi
}

case ${1:-} in
    start | kill | standby | promote | stop) "$1" ;;
    serve) serve_again ;;
    step) step "${2:?seconds with their sign}" ;;
    *) die "start, kill, serve, standby, promote, step or stop" ;;
esac
