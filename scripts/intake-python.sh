#!/usr/bin/env bash
# Requests from an application in Python, by the table ic_intake of SQLite and of PostgreSQL (examples/python/orders.py), and replies
# to a webhook whose receiver checks the signature with the library `standardwebhooks`.
#
#   scripts/intake-python.sh [FOLDER]     FOLDER holds the built program, target/debug unless named
#
# Prints a line for each store, `orders: store=NAME placed=N refused=N requests=N answered=N`, and one for the webhook,
# `webhook: tries=N taken=N ids=N`. Fails unless each order that was committed made one request and got its answer.
#
# Needs python3 with venv, a connection to PyPI, and what scripts/postgres.sh needs.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    echo "scripts/intake-python.sh: $*" >&2
    exit 1
}

readonly PACKAGES=(psycopg==3.3.9 psycopg-binary==3.3.9 standardwebhooks==1.1.0)
readonly ORDERS=20
program=$(realpath "${1:-target/debug}")/integration-client
[[ -x $program ]] || die "$program is not built: cargo build --locked -p integration-client-cli"

work=$(mktemp -d)
pids=()
finish() {
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    scripts/postgres.sh stop
    rm -rf "$work"
}
trap finish EXIT

python3 -m venv "$work/venv" || die "python3 has no venv (on Debian: apt-get install python3-venv)"
"$work/venv/bin/pip" install -q --disable-pip-version-check "${PACKAGES[@]}" || die "PyPI could not be reached"
python=$work/venv/bin/python
settings=$(scripts/postgres.sh start) && eval "$settings"

# The vendor, and the receiver of replies, which refuses the first try of each.
INTEGRATION_CLIENT_REPLIES_SECRET="whsec_$(head -c 32 /dev/urandom | base64)"
export INTEGRATION_CLIENT_REPLIES_SECRET
"$python" - "$work" <<'PYTHON' &
import http.server, os, sys
from standardwebhooks.webhooks import Webhook

work, secret, tried = sys.argv[1], os.environ["INTEGRATION_CLIENT_REPLIES_SECRET"], set()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status = 201
        if self.path == "/hook":
            reply = Webhook(secret).verify(body, {name.lower(): value for name, value in self.headers.items()})
            id, status = self.headers["webhook-id"], 204
            assert id.startswith(reply["id"] + "-")
            if id not in tried:
                tried.add(id)
                status = 500
        with open(f"{work}/got", "a") as got:
            print(self.path, status, self.headers.get("webhook-id"), file=got)
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
with open(f"{work}/port.new", "w") as port:
    port.write(str(server.server_address[1]))
os.rename(f"{work}/port.new", f"{work}/port")
server.serve_forever()
PYTHON
pids+=($!)
for _ in {1..100}; do
    [[ -e $work/port ]] && break
    sleep 0.1
done
port=$(cat "$work/port")
cat >"$work/vendors.toml" <<TOML
[vendors.orders]
base_url = "http://127.0.0.1:$port"
auth = { scheme = "none" }
unpublished = true
[[tenants]]
id = "acme"
vendor = "orders"
TOML

# Starts the program on a store, and waits until it takes requests.
intake() {
    "$program" intake table --store "$1" --vendors "$work/vendors.toml" "${@:2}" >"$work/out" 2>&1 &
    pids+=($!)
    for _ in {1..100}; do
        grep -q "taking requests" "$work/out" && return
        sleep 0.1
    done
    die "the program did not start: $(cat "$work/out")"
}
orders() {
    "$python" examples/python/orders.py "$@"
}

for name in sqlite postgres; do
    store=$([[ $name == sqlite ]] && echo "sqlite:$work/jobs.sqlite" || echo "$IC_TEST_POSTGRES")
    : >"$work/got"
    intake "$store"
    refused=0
    for number in $(seq "$ORDERS"); do
        orders "$store" place "$number" 1 >"$work/shown"
        # Not committed: something goes wrong, and an order that is there already.
        orders "$store" fail "x$number" 1 >/dev/null 2>&1 || refused=$((refused + 1))
        orders "$store" place "$number" 2 >/dev/null 2>&1 || refused=$((refused + 1))
    done
    for _ in {1..100}; do
        orders "$store" answers >"$work/shown"
        [[ $(grep -c "done 201" "$work/shown") == "$ORDERS" ]] && break
        sleep 0.1
    done
    requests=$(wc -l <"$work/got")
    answered=$(grep -c "done 201" "$work/shown")
    echo "orders: store=$name placed=$ORDERS refused=$refused requests=$requests answered=$answered"
    [[ $requests == "$ORDERS" && $answered == "$ORDERS" && $refused == $((2 * ORDERS)) ]] || die "some are missing or doubled"
    kill -TERM "${pids[-1]}"
    wait "${pids[-1]}" || die "the program ended badly: $(cat "$work/out")"
done

: >"$work/got"
store=sqlite:$work/hooks.sqlite
intake "$store" --replies "http://127.0.0.1:$port/hook"
for number in $(seq "$ORDERS"); do
    orders "$store" place "$number" 1 >/dev/null
done
for _ in {1..300}; do
    [[ $(grep -c "^/hook 204" "$work/got") == "$ORDERS" ]] && break
    sleep 0.1
done
kill -TERM "${pids[-1]}"
wait "${pids[-1]}" || die "the program ended badly: $(cat "$work/out")"
grep -q "replies delivered $ORDERS" "$work/out" || die "$(cat "$work/out")"
tries=$(grep -c "^/hook" "$work/got")
taken=$(grep -c "^/hook 204" "$work/got")
ids=$(awk '/^\/hook/ { print $3 }' "$work/got" | sort -u | wc -l)
echo "webhook: tries=$tries taken=$taken ids=$ids"
[[ $tries == $((2 * ORDERS)) && $taken == "$ORDERS" && $ids == "$ORDERS" ]] || die "some are missing or doubled"
