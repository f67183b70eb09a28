#!/usr/bin/env bash
# The whole way of requests from a broker: a producer in Python puts them into RabbitMQ, two processes that share one limit take
# them over and send them, and one of the two is killed half-way.
#
#   scripts/intake.sh [REQUESTS [FOLDER]]     30000 requests; FOLDER holds the built programs, target/debug unless named
#
# The last line is `whole: requests=N missing=N refused=N repeats=N seconds=N ideal=N`: what never arrived at the vendor, what the vendor
# refused, and what arrived again after the kill, with the same idempotency key. Fails unless missing and refused are 0, and the
# time is at most 5 % above that of the limit's pace.
#
# Needs python3 with venv, a connection to PyPI, and what scripts/rabbitmq.sh and scripts/postgres.sh need.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    echo "scripts/intake.sh: $*" >&2
    exit 1
}

readonly PIKA_VERSION=1.3.2
# What the vendor allows in a second. The client's pace is 80 % of it.
readonly LIMIT=625
requests=${1:-30000}
folder=$(realpath "${2:-target/debug}")
program=$folder/integration-client
vendor_program=$folder/examples/fake_vendor
for built in "$program" "$vendor_program"; do
    [[ -x $built ]] || die "$built is not built: cargo build --workspace --all-features --examples --bins"
done

work=$(mktemp -d)
mkfifo "$work/vendor"
pids=()
finish() {
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    scripts/rabbitmq.sh stop
    scripts/postgres.sh stop
    rm -rf "$work"
}
trap finish EXIT

python3 -m venv "$work/venv" || die "python3 has no venv (on Debian: apt-get install python3-venv)"
"$work/venv/bin/pip" install -q --disable-pip-version-check "pika==$PIKA_VERSION" || die "pika could not be fetched from PyPI"
settings=$(scripts/postgres.sh start) && eval "$settings"
settings=$(scripts/rabbitmq.sh start) && eval "$settings"

# Without an answer of its own that slows anybody down: it counts in windows that slide, and says nothing.
"$vendor_program" --limit "$LIMIT" --window-ms 1000 --algorithm sliding_window --latency-ms 20 --silent \
    <"$work/vendor" >"$work/vendor.out" &
pids+=($!)
# Closing it ends the vendor, which then prints its counts.
exec 9>"$work/vendor"
for _ in {1..100}; do
    grep -q listening "$work/vendor.out" && break
    sleep 0.05
done
url=$(sed -n 's/^listening on //p' "$work/vendor.out")

cat >"$work/vendors.toml" <<TOML
[vendors.shop]
base_url = "$url"
auth = { scheme = "none" }
unpublished = true
# What a killed process holds of the limit is away for the lease, the longest time on the way (this and a second) and a window.
connect_timeout = "500ms"
idempotency = { header = "idempotency-key" }
[[vendors.shop.limits]]
name = "requests"
algorithm = "sliding_window"
limit = $LIMIT
window = "1s"
[[tenants]]
id = "acme"
vendor = "shop"
[sharing]
through = "store"
lease = "2s"
TOML

"$work/venv/bin/python" - "$IC_TEST_RABBITMQ" "$requests" <<'PYTHON'
import json, sys, uuid, pika

connection = pika.BlockingConnection(pika.URLParameters(sys.argv[1]))
channel = connection.channel()
channel.queue_declare("requests", durable=True)
for number in range(int(sys.argv[2])):
    request = {"tenant": "acme", "vendor": "shop", "method": "POST", "path": f"/orders/{number}", "body": {"number": number}}
    properties = pika.BasicProperties(message_id=str(uuid.uuid4()), delivery_mode=2)
    channel.basic_publish("", "requests", json.dumps(request), properties)
connection.close()
PYTHON
echo "$requests requests are in the queue"

work_on() {
    "$program" intake "$IC_TEST_RABBITMQ?queue=requests" --store "$IC_TEST_POSTGRES" --vendors "$work/vendors.toml" \
        >"$work/$1.out" 2>&1 9>&- &
    pids+=($!)
}
delivered() {
    psql -qAt "$IC_TEST_POSTGRES" -c "SELECT count(*) FROM ic_done" 2>/dev/null || echo 0
}
# Until the first has made the tables, the second would wait for it.
work_on one
until [[ $(delivered) -gt 0 ]]; do
    kill -0 "${pids[-1]}" 2>/dev/null || die "the first process ended: $(cat "$work/one.out")"
    sleep 0.05
done
began=$(date +%s.%N)
before=$(delivered)
work_on two
killed=${pids[-1]}
until [[ $(delivered) -ge $((requests / 2)) ]]; do
    kill -0 "$killed" 2>/dev/null || die "the second process ended: $(cat "$work/two.out")"
    sleep 0.1
done
kill -KILL "$killed"
wait "$killed" 2>/dev/null || true
echo "one of the two was killed after $(delivered)"
for _ in {1..3000}; do
    now=$(delivered)
    [[ $now -ge $requests ]] && break
    sleep 0.1
done
ended=$(date +%s.%N)
dead=$(psql -qAt "$IC_TEST_POSTGRES" -c "SELECT count(*) FROM ic_dead")
exec 9>&-
wait "${pids[0]}" || true
counts=$(tail -n 1 "$work/vendor.out")
echo "vendor: $counts; dead letters: $dead"
read -r _ _ _ admitted _ refused _ <<<"$counts"
python3 - "$requests" "$now" "$admitted" "$refused" "$before" "$began" "$ended" "$LIMIT" <<'PYTHON'
import sys

requests, delivered, admitted, refused, before = map(int, sys.argv[1:6])
seconds, pace = float(sys.argv[7]) - float(sys.argv[6]), 0.8 * float(sys.argv[8])
missing, ideal = requests - delivered, (requests - before) / pace
print(f"whole: requests={requests} missing={missing} refused={refused} repeats={admitted - requests} seconds={seconds:.1f} ideal={ideal:.1f}")
sys.exit(missing != 0 or refused != 0 or seconds > 1.05 * ideal)
PYTHON
