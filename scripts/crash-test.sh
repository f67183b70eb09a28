#!/usr/bin/env bash
# Kills a working process again and again and counts what became of every request that it accepted.
#
#   scripts/crash-test.sh --kills N --store sqlite|postgres    SIGKILL at random moments, and ends at named points
#   scripts/crash-test.sh --zombies N --store ...              stopped for longer than the lease, and continued
#   scripts/crash-test.sh --store-restarts N --store postgres  the server is killed and started again
#
# With --seed N the same again, as far as clocks allow. Ends with a line of figures, and with success where nothing was lost,
# doubled, refused or late. For PostgreSQL it starts a
# server of its own, unless IC_TEST_POSTGRES names one with an empty database.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ " $* " == *" postgres "* && -z ${IC_TEST_POSTGRES:-} ]]; then
    settings=$(scripts/postgres.sh start)
    eval "$settings"
    trap 'scripts/postgres.sh stop' EXIT
fi

# With IC_BUILT it is built already, and does not wait for another build of the same folder.
[[ -n ${IC_BUILT:-} ]] || cargo build --quiet --locked --all-features --example crash_test
# Each tenant's key is its name; the vendor knows callers by it.
export CRASH_TEST_KEY_acme=acme CRASH_TEST_KEY_umbra=umbra CRASH_TEST_KEY_zenith=zenith
"${CARGO_TARGET_DIR:-target}/debug/examples/crash_test" "$@"
