#!/usr/bin/env bash
# Fuzzes every reader of foreign input (fuzz/fuzz_targets) with libFuzzer, for a while each.
#
#   scripts/fuzz.sh [--seconds N] [TARGET...]   60 seconds for each target, and all targets, unless stated
#
# It needs the stable toolchain and a C++ compiler, and neither a nightly toolchain nor cargo-fuzz: the flags that make rustc
# count which code has run are stable, and the crate libfuzzer-sys brings libFuzzer as source. What is instrumented forbids
# unsafe code, so no address sanitizer is used; overflow checks and debug assertions are on.
#
# An input that breaks something is kept in fuzz/artifacts/TARGET, and the script ends with 1. Inputs that reach new code
# are kept in fuzz/corpus/TARGET, and the next run begins with them. The last line for each target says how often it ran.

set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60
targets=()
while [[ $# -gt 0 ]]; do
    case $1 in
    --seconds)
        seconds=${2:?--seconds needs a number}
        shift 2
        ;;
    -*)
        echo "usage: scripts/fuzz.sh [--seconds N] [TARGET...]" >&2
        exit 2
        ;;
    *)
        targets+=("$1")
        shift
        ;;
    esac
done
if [[ ${#targets[@]} == 0 ]]; then
    for file in fuzz/fuzz_targets/*.rs; do
        targets+=("$(basename "$file" .rs)")
    done
fi

host=$(rustc -vV | sed -n 's/^host: //p')
flags=(
    --cfg fuzzing
    -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table
    -Cllvm-args=-sanitizer-coverage-trace-compares
    -Ccodegen-units=1
)
# With a target stated, build scripts and procedural macros are not instrumented.
RUSTFLAGS="${flags[*]}" cargo build --manifest-path fuzz/Cargo.toml --release --target "$host" --bins

failed=0
for target in "${targets[@]}"; do
    binary=fuzz/target/$host/release/$target
    mkdir -p "fuzz/corpus/$target" "fuzz/artifacts/$target"
    log=$(mktemp)
    if "$binary" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=65536 -len_control=20 \
        -artifact_prefix="fuzz/artifacts/$target/" -print_final_stats=1 \
        "fuzz/corpus/$target" "fuzz/seeds/$target" >"$log" 2>&1; then
        result=ok
    else
        result=FAILED
        failed=1
        tail -n 40 "$log" >&2
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    covered=$(grep -o 'cov: [0-9]*' "$log" | tail -n 1 | cut -d' ' -f2)
    echo "fuzz: target=$target seconds=$seconds runs=${runs:-unknown} covered=${covered:-unknown} $result"
    rm -f "$log"
done
exit "$failed"
