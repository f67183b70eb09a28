#!/usr/bin/env bash
# Disturbs a whole deployment and judges every request of it: reloads, moves of accounts, clock steps, store stalls, vendor
# outages, cancelled requests and killed workers, at random.
#
#   scripts/soak.sh [--seconds N] [--store sqlite|postgres] [--seed N] [--without KIND,...] [--verbose] [--log FILE]
#
# 600 seconds with SQLite unless stated. --seed repeats a run as far as real time allows; --without leaves kinds of
# disturbances out (reload, malformed, move, clock, stall, outage, kill); --verbose prints what happens when; --log keeps the
# warnings of the programs. Ends with the line
#
#   soak: seconds=N sent=N refused=N over_limit=N lost=N doubled=N stuck=N
#
# and with success if all but the first two are 0. examples/soak/main.rs says what is counted. For PostgreSQL it starts a
# server of its own, unless IC_TEST_POSTGRES names one.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ " $* " == *" postgres "* && -z ${IC_TEST_POSTGRES:-} ]]; then
    settings=$(scripts/postgres.sh start)
    eval "$settings"
    trap 'scripts/postgres.sh stop' EXIT
fi

cargo build --quiet --locked --all-features --example soak
"${CARGO_TARGET_DIR:-target}/debug/examples/soak" "$@"
