#!/usr/bin/env bash
# A private server that speaks the protocol of Amazon SQS (moto), for tests, on a free port of this machine. It keeps all in
# memory: it can be stopped for a while, and not be started again.
#
#   eval "$(scripts/sqs.sh start)"   starts it, and sets IC_TEST_SQS (its URL), IC_TEST_SQS_DIR and keys that it takes
#   scripts/sqs.sh pause             stops the server with SIGSTOP: connections to it hang
#   scripts/sqs.sh resume            lets it go on
#   scripts/sqs.sh stop              ends it and removes the folder
#
# Needs what `installed_moto` in scripts/servers.sh needs.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    echo "scripts/sqs.sh: $*" >&2
    exit 1
}

# shellcheck source=scripts/servers.sh
source scripts/servers.sh

start() {
    local dir port venv
    venv=$(installed_moto)
    dir=$(mktemp -d)
    port=$(free_port)
    setsid "$venv/bin/python" scripts/moto/sqs.py "$port" >"$dir/log" 2>&1 </dev/null &
    echo "$!" >"$dir/pid"
    for _ in {1..600}; do
        if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "export IC_TEST_SQS_DIR=$dir IC_TEST_SQS=sqs+http://127.0.0.1:$port" \
                "AWS_ACCESS_KEY_ID=test AWS_SECRET_ACCESS_KEY=test AWS_REGION=us-east-1"
            return
        fi
        sleep 0.1
    done
    die "the server did not start; it said: $(tail -n 5 "$dir/log" 2>/dev/null)"
}

signal() {
    builtin kill "-$1" "$(cat "${IC_TEST_SQS_DIR:?}/pid")"
}

stop() {
    remove_server "${IC_TEST_SQS_DIR:-}"
}

case ${1:-} in
    start | stop) "$1" ;;
    pause) signal STOP ;;
    resume) signal CONT ;;
    *) die "start, pause, resume or stop" ;;
esac
