#!/usr/bin/env bash
# SDKs as they come, against vendors on loopback that count: of Rust through the client (the package examples/sdks), of Python and
# Node through `integration-client serve`.
#
#   scripts/sdks.sh [FOLDER]       FOLDER holds the built programs; target/debug unless named
#
# The last line is `sdks: clients=N requests=N refused=N leaked=N doubled=N`: what arrived at the vendors, what they refused, which
# requests had a caller's token or a header for the gateway in them, and which arrived more often than they were asked for. All but the first two must be 0.
#
# Needs python3 with venv, node, npm and a connection to PyPI and npm: fetches the SDKs, of the versions in
# scripts/sdks/requirements.lock and package-lock.json, into a temporary folder. To change a version, change
# requirements.txt or package.json, and then, in that folder:
#
#   uv pip compile --universal --generate-hashes --no-annotate --no-header --python-version 3.10 requirements.txt -o requirements.lock
#   npm install --package-lock-only

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
    echo "scripts/sdks.sh: $*" >&2
    exit 1
}

folder=$(realpath "${1:-target/debug}")
readonly RUST=(octocrab async_openai aws_sqs)
for program in integration-client "${RUST[@]}"; do
    [[ -x $folder/$program ]] || die "$folder/$program is not built: cargo build --workspace --all-features --examples --bins"
done
program=$folder/integration-client
for tool in python3 node npm curl; do
    command -v "$tool" >/dev/null || die "$tool is missing"
done

work=$(mktemp -d)
vendor='' gateway=''
finish() {
    kill $vendor $gateway 2>/dev/null || true
    rm -rf "$work"
}
trap finish EXIT

python3 -m venv "$work/venv" || die "python3 has no venv (on Debian: apt-get install python3-venv)"
"$work/venv/bin/pip" install -q --disable-pip-version-check --require-hashes -r scripts/sdks/requirements.lock ||
    die "the SDKs of Python could not be fetched from PyPI; see above. This needs a connection to it, or to a mirror (PIP_INDEX_URL)"
cp scripts/sdks/package.json scripts/sdks/package-lock.json scripts/sdks/sdks.mjs "$work"
(cd "$work" && npm ci --no-audit --no-fund --fetch-retry-maxtimeout=10000 >npm.log 2>&1) || {
    cat "$work/npm.log" >&2
    die "the SDKs of Node could not be fetched from npm; see above. This needs a connection to it, or to a mirror (npm_config_registry)"
}

for sdk in "${RUST[@]}"; do
    timeout 60 "$folder/$sdk" | tee -a "$work/rust" || die "the SDK of Rust $sdk did not get what a direct call gets; see above"
done

export IC_SDKS_KEY=vendor-key TOKEN=callers-token-0123456789abcdef
python3 scripts/sdks/vendor.py "$TOKEN" >"$work/port" &
vendor=$!
for _ in {1..100}; do
    [[ -s $work/port ]] && break
    sleep 0.05
done
VENDOR=http://127.0.0.1:$(cat "$work/port")
export VENDOR

for name in github openai stripe sqs; do
    cat <<END
[vendors.$name]
base_url = "$VENDOR/$name"
END
    case $name in
        # Its SDK signs each request.
        sqs) echo 'auth = { scheme = "none" }' ;;
        *) printf 'extends = "none"\nauth = { scheme = "bearer" }\n' ;;
    esac
    [[ $name != stripe ]] || echo 'idempotency = { header = "idempotency-key" }'
    cat <<END
[[vendors.$name.limits]]
name = "second"
limit = 20
window = "1s"
source = "stated"
[[tenants]]
id = "acme"
vendor = "$name"
END
    [[ $name == sqs ]] || echo 'credential = "env:IC_SDKS_KEY"'
done >"$work/vendors.toml"
cat >>"$work/vendors.toml" <<END
[[callers]]
name = "sdks"
token = "env:TOKEN"
tenants = ["acme"]
END

"$program" serve --vendors "$work/vendors.toml" --listen 127.0.0.1:0 --lane 127.0.0.1:0=acme/stripe >"$work/said" &
gateway=$!
for _ in {1..100}; do
    grep -qs '^lane' "$work/said" && break
    kill -0 "$gateway" || die "the gateway did not begin; see above"
    sleep 0.05
done
GATEWAY=$(grep -o 'http://[0-9.:]*' "$work/said" | head -n 1)
LANE=$(sed -n 's|^lane: http://\([0-9.:]*\) .*|\1|p' "$work/said")
export GATEWAY LANE

"$work/venv/bin/python" scripts/sdks/sdks.py >"$work/python" || die "an SDK of Python did not get what a direct call gets; see above"
(cd "$work" && node sdks.mjs) >"$work/node" || die "an SDK of Node did not get what a direct call gets; see above"
curl -sf "$VENDOR/report" >"$work/report"
kill -TERM "$gateway"
wait "$gateway" || die "the gateway did not end in good order"
gateway=''

python3 - "$work" <<'END'
import json
import sys

python, node, report = (json.load(open(f"{sys.argv[1]}/{name}")) for name in ("python", "node", "report"))
# What the vendor broke off, and how often it was to arrive: once, or again with the same key.
broken = python["broken"] | node["broken"]
# The broken request with a key arrived once more, and that one was answered.
unanswered = sum(times if times == 1 else times - 1 for times in broken.values())
doubled = report["arrived"] - report["refused"] - python["answered"] - node["answered"] - unanswered
keys = {key: python["keys"].get(key, 0) + node["keys"].get(key, 0) for key in python["keys"] | node["keys"]}
for name, said, expected in (("keys", report["keys"], keys), ("broken", report["broken"], broken)):
    if said != expected:
        print(f"sdks: {name} that arrived and how often: {said}, and not {expected}", file=sys.stderr)
        doubled += 1
clients = python["clients"] + node["clients"]
# Those of Rust have judged by vendors of their own.
for line in open(f"{sys.argv[1]}/rust"):
    counts = {name: int(count) for name, count in (word.split("=") for word in line.split()[1:])}
    clients += 1
    report["arrived"] += counts["requests"]
    report["refused"] += counts["refused"]
    report["leaked"] += counts["leaked"]
    doubled += counts["doubled"]
print(f"sdks: clients={clients} requests={report['arrived']} refused={report['refused']} leaked={report['leaked']} doubled={doubled}")
sys.exit(report["refused"] or report["leaked"] or doubled)
END
