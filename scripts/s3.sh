#!/usr/bin/env bash
# A private server that speaks as S3 does, for tests: moto from PyPI, in memory, on a free port of this machine. It is installed once,
# into target/.
#
#   eval "$(scripts/s3.sh start)"   starts it with a bucket, and sets IC_TEST_S3 (the bucket's URL), IC_TEST_S3_DIR and AWS_…
#   scripts/s3.sh signal NAME       sends a signal to the server
#   scripts/s3.sh stop              stops it
#
# Needs python3 and curl.

set -euo pipefail

readonly MOTO_VERSION=5.2.5 FLASK_VERSION=3.1.3 FLASK_CORS_VERSION=6.0.5

die() {
    echo "scripts/s3.sh: $*" >&2
    exit 1
}

# shellcheck source=scripts/servers.sh
source "$(dirname "${BASH_SOURCE[0]}")/servers.sh"

start() {
    local dir port server endpoint venv
    venv=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)/target/moto-$MOTO_VERSION
    if [[ ! -x $venv/bin/moto_server ]]; then
        rm -rf "$venv"
        mkdir -p "$(dirname "$venv")"
        python3 -m venv "$venv" >&2 && "$venv/bin/pip" install -q --disable-pip-version-check \
            "moto[s3]==$MOTO_VERSION" "flask==$FLASK_VERSION" "flask-cors==$FLASK_CORS_VERSION" >&2 ||
            { rm -rf "$venv"; die "moto cannot be installed from PyPI"; }
    fi
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
    local dir=${IC_TEST_S3_DIR:-}
    if [[ -n $dir && -d $dir ]]; then
        end_process "$dir/pid" || true
        rm -rf "$dir"
    fi
}

case ${1:-} in
    start | stop) "$1" ;;
    signal) kill "-${2:?}" "$(cat "${IC_TEST_S3_DIR:?}/pid")" ;;
    *) die "start, signal NAME or stop" ;;
esac
