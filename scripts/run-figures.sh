#!/usr/bin/env bash
# Measures `integration-client run` against a vendor in a process of its own: 10,000 jobs at 2,000 a second, the same killed
# twice on the way, and the memory and the start of a file of many lines.
#
#   scripts/run-figures.sh [LINES]      LINES of the large file, a million unless given
#
# The vendor counts fixed windows and says nothing in its answers; the entry states `safety = 1.0`, so that the ideal is
# 10,000 / 2,000 = 5 s. Prints a line for each figure. Not part of the checks: figures depend on what else runs.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lines=${1:-1000000}
port=18431
cargo build --quiet --locked --release -p integration-client-cli -p integration-client --all-features --bin integration-client --example fake_vendor
target=${CARGO_TARGET_DIR:-target}/release
program=$(realpath "$target/integration-client")
vendor=$(realpath "$target/examples/fake_vendor")
folder=$(mktemp -d)
trap 'rm -rf "$folder"; exec 9>&- || true' EXIT
cd "$folder"
export IC_RUN_KEY=acme

cat >vendors.toml <<TOML
[vendors.v]
base_url = "http://127.0.0.1:$port"
auth = { scheme = "bearer" }
max_transit = "1s"
connect_timeout = "1s"
[[vendors.v.limits]]
name = "second"
scope = "account"
algorithm = "fixed_window"
limit = 2000
window = "1s"
safety = 1.0
[vendors.v.idempotency]
header = "idempotency-key"
[[tenants]]
id = "acme"
vendor = "v"
credential = "env:IC_RUN_KEY"
TOML

jobs() {
    awk -v n="$1" 'BEGIN { for (i = 1; i <= n; i++)
        printf "{\"tenant\":\"acme\",\"vendor\":\"v\",\"priority\":\"low\",\"method\":\"POST\",\"path\":\"/jobs/%d\",\"body\":{\"record\":%d}}\n", i, i }'
}

# The vendor ends, and says its counts, when its standard input closes.
start_vendor() {
    rm -f in
    mkfifo in
    "$vendor" --port "$port" --silent --log-cap 0 "$@" <in >vendor.out &
    vendor_id=$!
    exec 9>in
    until grep -q listening vendor.out 2>/dev/null; do sleep 0.02; done
}

end_vendor() {
    exec 9>&-
    wait "$vendor_id"
    counts=$(grep arrived vendor.out)
}

jobs 10000 >jobs.jsonl
for round in 1 2 3; do
    rm -f jobs.jsonl.sqlite*
    start_vendor --limit 2000 --window-ms 1000 --algorithm fixed_window
    "$program" run jobs.jsonl --vendors vendors.toml --quiet 2>run.err
    end_vendor
    echo "10,000 jobs at 2,000/s, ideal 5.00 s, round $round: $(tail -1 run.err); $counts"
done

rm -f jobs.jsonl.sqlite*
start_vendor --limit 2000 --window-ms 1000 --algorithm fixed_window
for after in 1.5 1.5; do
    "$program" run jobs.jsonl --vendors vendors.toml --quiet --out results.jsonl 2>/dev/null &
    killed=$!
    sleep "$after"
    kill -9 "$killed"
    wait "$killed" 2>/dev/null || true
done
"$program" run jobs.jsonl --vendors vendors.toml --quiet --out results.jsonl 2>run.err
lines_once=$(grep -c . results.jsonl)
distinct=$(grep -o '"line":[0-9]*' results.jsonl | sort -u | wc -l)
end_vendor
echo "killed twice: $(tail -1 run.err); results $lines_once lines, $distinct distinct; $counts"

jobs "$lines" >many.jsonl
start_vendor --limit 2000 --window-ms 1000 --algorithm fixed_window
began=$(date +%s%N)
"$program" run many.jsonl --vendors vendors.toml --quiet --out many.results 2>run.err &
run_id=$!
until [[ -s many.results ]]; do sleep 0.01; done
first=$((($(date +%s%N) - began) / 1000000))
sleep "${SECONDS_OF_MANY:-60}"
memory=$(awk '/VmHWM/ { print $2 / 1024 }' "/proc/$run_id/status")
kill -INT "$run_id"
wait "$run_id" || true
end_vendor
echo "$lines lines, $(du -h many.jsonl | cut -f1): first answer after $first ms; most memory in ${SECONDS_OF_MANY:-60} s $memory MiB; store $(du -h many.jsonl.sqlite | cut -f1); $(tail -1 run.err); $counts"
