#!/usr/bin/env bash
# Changes the engine in every small way that cargo-mutants knows, and says which changes no test of the engine notices.
#
#   scripts/mutants.sh                         limits, turns and queues
#   scripts/mutants.sh -f 'engine/src/FILE'    only this; other arguments go to cargo-mutants too (--shard 0/4)
#
# The engine is a crate that needs nothing of the library, so it is compiled alone: seconds for each change instead of minutes.
# Only its own tests look at it here; those of the whole client, with the simulator, are not run.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FILES=('engine/src/limit/**' engine/src/scheduler.rs engine/src/turns.rs 'engine/src/waiting/**' engine/src/admission.rs)

command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
command -v cargo-nextest >/dev/null || cargo install --locked cargo-nextest

arguments=("$@")
if [[ ! " $* " =~ " -f " ]]; then
    for file in "${FILES[@]}"; do
        arguments+=(-f "$file")
    done
fi
mkdir -p target/mutants
status=0
# Three tests that take seconds each, and ask of the whole what the others ask of its parts, are left out: it makes the score
# smaller at worst.
cargo mutants --package integration-client-engine --output target/mutants --test-tool nextest "${arguments[@]}" \
    -- --lib -E "not test(/forecast_matches_what_happens|below_shared_limit|stated_time_is_never_undercut/)" || status=$?
count() {
    wc -l < "target/mutants/mutants.out/$1.txt"
}
caught=$(($(count caught) + $(count timeout)))
all=$((caught + $(count missed)))
echo "mutants: caught=$caught missed=$(count missed) score=$((100 * caught / (all > 0 ? all : 1))) %"
cat target/mutants/mutants.out/missed.txt
exit "$status"
