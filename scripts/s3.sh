#!/usr/bin/env bash
# A private server that speaks as S3 does, for tests: moto, in memory, on a free port of this machine.
#
#   eval "$(scripts/s3.sh start)"   starts it with a bucket, and sets IC_TEST_S3 (the bucket's URL), IC_TEST_S3_DIR and AWS_…
#   scripts/s3.sh signal NAME       sends a signal to the server
#   scripts/s3.sh stop              stops it
#
# Needs curl, and what `installed_moto` in scripts/servers.sh needs.

set -euo pipefail

die() {
    echo "scripts/s3.sh: $*" >&2
    exit 1
}

# shellcheck source=scripts/servers.sh
source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"

start() {
    local dir port server endpoint venv
    venv=$(installed_moto)
    dir=$(mktemp -d)
    port=$(free_port)
    endpoint=http://127.0.0.1:$port
    setsid "$venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$dir/log" 2>&1 </dev/null &
    server=$!
    echo $server >"$dir/pid"
    for _ in {1..400}; do
        if curl -sf -m 5 -X PUT "$endpoint/shared" >/dev/null 2>&1; then
            echo "export IC_TEST_S3_DIR=$dir IC_TEST_S3='s3://shared/limits?endpoint=$endpoint&allow_http=true'"
            echo "export AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1"
            return
        fi
        sleep 0.05
    done
    die "the server did not start; its log: $(tail -n 5 "$dir/log" 2>/dev/null)"
}

stop() {
    remove_server "${IC_TEST_S3_DIR:-}"
}

case ${1:-} in
    start | stop) "$1" ;;
    signal) kill "-${2:?}" "$(cat "${IC_TEST_S3_DIR:?}/pid")" ;;
    *) die "start, signal NAME or stop" ;;
esac
