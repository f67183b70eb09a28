#!/usr/bin/env bash
# Changes the engine in every small way that cargo-mutants knows, and says which changes no test of the engine notices.
#
#   scripts/mutants.sh                         limits, turns and queues
#   scripts/mutants.sh -f 'src/engine/FILE'    only this; other arguments go to cargo-mutants too (--shard 0/4)
#
# The engine imports nothing but itself and the clock, so it is compiled alone: seconds for each change instead of minutes.
# Only its own tests (src/engine) look at it here; those of the whole client, with the simulator, are not run.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly FILES=(src/engine/limit/** src/engine/scheduler.rs src/engine/turns.rs src/engine/waiting.rs src/engine/admission.rs)

command -v cargo-mutants >/dev/null || cargo install --locked cargo-mutants
command -v cargo-nextest >/dev/null || cargo install --locked cargo-nextest

alone=target/mutants
mkdir -p "$alone/src" "$alone/.cargo"
rm -rf "$alone/src/engine" "$alone/src/testing/limit"
cp -r src/engine src/clock.rs "$alone/src/"
mkdir -p "$alone/src/testing"
cp -r src/testing/limit "$alone/src/testing/"
cp .cargo/mutants.toml "$alone/.cargo/"
cp Cargo.lock "$alone/"
# Examples in its documentation speak of the whole crate.
cat > "$alone/src/lib.rs" <<'LIB'
#![allow(dead_code, unreachable_pub, unused_imports)]
pub mod clock;
mod engine;
pub mod limit;
LIB
{
    printf '[package]\nname = "engine-alone"\nversion = "0.0.0"\nedition = "2024"\npublish = false\n\n'
    printf '[lib]\ndoctest = false\n\n[features]\ntesting = []\n\n[workspace]\n\n[dependencies]\n'
    grep -E '^(compact_str|hashbrown|smallvec|parking_lot|fastrand) = ' Cargo.toml | sort -u
    printf 'tokio = { version = "1", features = ["time", "rt", "macros", "test-util"] }\n\n[profile.dev]\nopt-level = 1\ndebug = false\n'
} > "$alone/Cargo.toml"

cd "$alone"
arguments=("$@")
if [[ ! " $* " =~ " -f " ]]; then
    for file in "${FILES[@]}"; do
        arguments+=(-f "$file")
    done
fi
status=0
# Three tests that take seconds each, and ask of the whole what the others ask of its parts, are left out: it makes the score
# smaller at worst.
cargo mutants --in-place --output . --test-tool nextest "${arguments[@]}" \
    -- --lib -E "not test(/what_is_forecast_happens|below_one_that_all_share|never_before_the_stated_time/)" || status=$?
count() {
    wc -l < "mutants.out/$1.txt"
}
caught=$(($(count caught) + $(count timeout)))
all=$((caught + $(count missed)))
echo "mutants: caught=$caught missed=$(count missed) score=$((100 * caught / (all > 0 ? all : 1))) %"
cat mutants.out/missed.txt
exit "$status"
